//! The program that callgrind counts, on the simulated fabric.

use std::process::{Command, Output};

/// Each tick causes one order in the counted round, however slow the machine is.
#[test]
fn each_tick_causes_an_order() {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_ticker-figures")).arg("run").output().expect("the program starts");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}
