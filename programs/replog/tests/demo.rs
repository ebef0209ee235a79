//! The demo.

use std::process::{Command, Output};

#[test]
fn another_replica_leads_after_a_death() {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_replog")).arg("demo").output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{stdout}{stderr}");
    assert!(stdout.matches(" leads term ").count() >= 2, "{stdout}");
    assert_eq!(stdout.matches("acknowledged records").count(), 3, "{stdout}");
}
