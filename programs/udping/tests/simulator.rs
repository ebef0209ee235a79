//! The program on the simulated fabric, with each driver.

use std::process::{Command, Output};

#[test]
fn the_demo_on_every_driver() {
    for driver in ["mio", "epoll", "blocking"] {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_udping"))
            .args(["demo", "--driver", driver])
            .output()
            .expect("the program starts");
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{driver}: {said}");
        for line in [
            "100 datagrams answered",
            "10 datagrams sent, 10 replies",
            "10 messages arrived",
            "10 messages sent to 239.1.1.1",
        ] {
            assert!(said.contains(line), "{driver}: {line} is not in\n{said}");
        }
    }
}

#[test]
fn the_disk_of_the_output_is_full() {
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let program = Command::new(env!("CARGO_BIN_EXE_udping")).arg("demo").stdout(full).output();
    let said = program.expect("the program starts").stderr;
    assert_eq!(String::from_utf8_lossy(&said), "udping: standard output: No space left on device (os error 28)\n");
}

/// The trace is written to a full disk.
#[test]
fn a_trace_that_is_lost_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, lost) = (folder.path().join("whole"), folder.path().join("lost"));
    std::os::unix::fs::symlink("/dev/full", &lost).expect("a link");
    for (file, succeeds) in [(whole, true), (lost, false)] {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_udping"))
            .args(["demo", "--trace"])
            .arg(file)
            .output()
            .expect("the program starts");
        let (said, wrong) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert_eq!(status.success(), succeeds, "{said}{wrong}");
        assert!(said.contains("100 datagrams answered") && said.contains("10 messages arrived"), "{said}{wrong}");
        let refused = wrong.contains("the trace is not complete") && wrong.contains("No space left");
        assert_eq!(refused, !succeeds, "{said}{wrong}");
    }
}
