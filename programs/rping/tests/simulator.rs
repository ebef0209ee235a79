//! The program on the simulated fabric, with each driver.

use std::process::{Command, Output};

fn rping(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_rping")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn pings_on_every_driver() {
    for driver in ["mio", "epoll", "blocking"] {
        let arguments = ["-c", "-a", "10.0.0.2", "-C", "20", "-S", "300", "-V", "-v", "--driver", driver];
        let (succeeded, said) = rping(&arguments);
        assert!(succeeded, "{driver}: {said}");
        let both = |text: &str| said.lines().filter(|line| line.starts_with(text)).count();
        assert_eq!((both("ping data: rdma-ping-"), both("server ping data: rdma-ping-")), (20, 20), "{driver}: {said}");
    }
}

#[test]
fn wrong_arguments_say_what_is_missing_and_a_simulated_ping_says_that_it_is_one() {
    for (arguments, expected) in [
        (&["-C", "1"][..], "<--server|--client>"),
        (&["-c"], "--address <ADDRESS>"),
        (&["-s", "-c", "-a", "10.0.0.2"], "cannot be used with"),
        (&["-s", "-p", "0"], "0 is not in 1..=65535"),
    ] {
        let (succeeded, said) = rping(arguments);
        assert!(!succeeded && said.contains(expected), "{arguments:?}: {said}");
    }
    // The address is not that of the simulated server, so nothing must look as if a peer had answered.
    let (succeeded, said) = rping(&["-c", "-a", "192.0.2.1", "-C", "1"]);
    assert!(succeeded && said.starts_with("both sides run in this process"), "{said}");
}

#[test]
fn the_demo() {
    let (succeeded, said) = rping(&["demo"]);
    assert!(succeeded, "{said}");
    assert!(said.contains("s1/id0 is the first id of core 1"), "{said}");
    assert_eq!(said.matches("has completed 3 pings and disconnects").count(), 2, "{said}");
    assert!(said.contains("disconnects after 3 pings"), "{said}");
    let is_moved = |line: &str| line.contains("ch1; ") && line.contains("ch0 is empty");
    assert!(said.lines().any(is_moved), "{said}");
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("README.md");
    let shown: Vec<_> =
        readme.lines().filter(|line| ["  client  ", "  server  "].iter().any(|side| line.starts_with(side))).collect();
    assert_eq!(shown.len(), 4, "{shown:?}");
    shown.iter().for_each(|line| assert!(said.lines().any(|it| it == *line), "{line}"));
}

#[test]
fn the_disk_of_the_output_is_full() {
    for arguments in [&["-c", "-a", "10.0.0.2", "-C", "3", "-v"][..], &["demo"]] {
        let full = std::fs::File::create("/dev/full").expect("/dev/full");
        let program = Command::new(env!("CARGO_BIN_EXE_rping")).args(arguments).stdout(full).output();
        let Output { status, stderr, .. } = program.expect("the program starts");
        let said = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && said.starts_with("rping: standard output: No space left"), "{said}");
    }
}

/// The trace is written to a full disk.
#[test]
fn a_trace_that_is_lost_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, lost) = (folder.path().join("whole"), folder.path().join("lost"));
    std::os::unix::fs::symlink("/dev/full", &lost).expect("a link");
    for driver in ["mio", "epoll", "blocking"] {
        let with = |file: &std::path::Path| {
            let file = file.to_str().expect("a name in UTF-8");
            rping(&["-c", "-a", "10.0.0.2", "-C", "3", "-v", "--driver", driver, "--trace", file])
        };
        let (succeeded, said) = with(&whole);
        assert!(succeeded, "{driver}: {said}");
        let (succeeded, said) = with(&lost);
        assert!(!succeeded, "{driver}: {said}");
        let pings = said.lines().filter(|line| line.starts_with("ping data: rdma-ping-")).count();
        assert_eq!(pings, 3, "{driver}: {said}");
        assert!(said.contains("the trace is not complete") && said.contains("No space left"), "{driver}: {said}");
        let (succeeded, said) = with("/no/such/folder/trace".as_ref());
        let errors = said.lines().filter(|line| line.starts_with("rping: ")).count();
        assert!(!succeeded && errors == 1 && said.lines().count() == 2, "{driver}: {said}");
    }
}
