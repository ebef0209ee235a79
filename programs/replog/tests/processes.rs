//! Replicas as processes that are killed and paused, over TCP. The VM runs the same over RDMA.

use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

const TORTURE: [&str; 6] = ["torture", "--transport", "tcp", "--address", "127.0.0.1", "--rounds"];

/// Waits until all replicas run, or none.
fn wait(run: bool) {
    let is_so = |port| TcpStream::connect(("127.0.0.1", port)).is_ok() == run;
    for _ in 0..1200 {
        if (7600..7603).all(is_so) {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("the replicas do not {}", if run { "run" } else { "end" });
}

#[test]
fn records_survive_kills_and_pauses_and_no_replica_survives_the_program() {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_replog")).args(TORTURE).arg("3").output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("3 rounds: ok"), "{stdout}{stderr}");

    let mut killed = Command::new(env!("CARGO_BIN_EXE_replog"));
    let mut killed = killed.args(TORTURE).arg("1000").stdout(Stdio::null()).spawn().expect("the program starts");
    wait(true);
    let second =
        Command::new(env!("CARGO_BIN_EXE_replog")).args(TORTURE).arg("3").output().expect("the program starts");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another `replog torture`"), "{said}");
    killed.kill().and_then(|()| killed.wait()).expect("it is killed");
    wait(false);
}
