//! The program on the simulated fabric, with each driver.

use std::process::{Command, Output};

use serde_json::Value;

fn cmtime(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_cmtime")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// The JSON in the first line of a run's output.
fn report(said: &str) -> Value {
    serde_json::from_str(said.lines().next().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn failures(report: &Value) -> u64 {
    report["failed"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}

/// The sum of all outcomes: every connection is counted exactly once.
fn counted(report: &Value) -> u64 {
    let count = |name: &str| report[name].as_u64().unwrap_or(u64::MAX / 8);
    count("finished") + failures(report) + count("unfinished")
}

#[test]
fn every_connection_is_counted_once_in_each_phase() {
    for driver in ["mio", "epoll"] {
        for rest in [&[][..], &["-q", "1000"], &["-b", "10.0.0.1"]] {
            let (succeeded, said) = cmtime(&[&["--driver", driver, "-c", "50", "--json"], rest].concat());
            assert!(succeeded, "{driver} {rest:?}: {said}");
            let report = report(&said);
            assert_eq!((report["finished"].as_u64(), counted(&report)), (Some(50), 50), "{driver} {rest:?}: {said}");
            let phases = report["phases"].as_array().cloned().unwrap_or_default();
            // All phases and the two sums. The bind phase occurs only with an address.
            assert_eq!(phases.len(), if rest.first() == Some(&"-b") { 10 } else { 9 }, "{driver} {rest:?}: {said}");
            for phase in phases {
                assert_eq!(phase["count"].as_u64(), Some(50), "{driver} {rest:?}: {phase}");
            }
        }
    }
}

#[test]
fn the_disk_of_the_output_is_full() {
    for arguments in [&["-c", "3"][..], &["-c", "3", "--json"]] {
        let full = std::fs::File::create("/dev/full").expect("/dev/full");
        let program = Command::new(env!("CARGO_BIN_EXE_cmtime")).args(arguments).stdout(full).output();
        let Output { status, stderr, .. } = program.expect("the program starts");
        let said = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && said.contains("standard output: No space left on device"), "{said}");
    }
}

#[test]
fn the_table_names_the_phases() {
    let (succeeded, said) = cmtime(&["-c", "3"]);
    assert!(succeeded, "{said}");
    for phase in ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"] {
        assert!(said.lines().any(|line| line.starts_with(phase)), "no {phase}: {said}");
    }
    assert!(said.contains("3 of 3 connections finished") && said.contains("3 connections came and went"), "{said}");
}

#[test]
fn failures_are_counted_and_fail_the_program() {
    let (succeeded, said) = cmtime(&["-c", "30", "-b", "10.0.0.9", "--json"]);
    assert!(!succeeded, "{said}");
    let report = report(&said);
    assert_eq!((failures(&report), counted(&report)), (30, 30), "{said}");
    assert!(said.contains("bind addr: bind_addr failed: EADDRNOTAVAIL"), "{said}");
    assert!(said.contains("not all connections have finished"), "{said}");
}
