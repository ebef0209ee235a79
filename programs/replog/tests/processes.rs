//! Replicas as processes that are killed and paused, over TCP. The VM runs the same over RDMA.

use std::process::{Command, Output};

#[test]
fn records_survive_kills_and_pauses() {
    let arguments = ["torture", "--transport", "tcp", "--address", "127.0.0.1", "--rounds", "3"];
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_replog")).args(arguments).output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("3 rounds: ok"), "{stdout}{stderr}");
}
