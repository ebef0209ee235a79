//! The program on the simulated fabric, where all addresses of a host are on one device.

use std::process::{Command, Output};

fn wildcard(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_wildcard")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn connections_on_one_device_share_its_memory() {
    let (succeeded, said) = wildcard(&["10.0.0.2=sim", "10.0.0.3=sim", "10.0.0.2=sim"]);
    assert!(succeeded, "{said}");
    assert!(said.contains("client: 10.0.0.3 is served by sim"), "{said}");
    assert_eq!(said.matches("is registered").count(), 1, "{said}");
    assert!(said.contains("server: 3 connections, devices: 1"), "{said}");
}

#[test]
fn an_unexpected_device_is_an_error() {
    let (succeeded, said) = wildcard(&["10.0.0.2=rxe0"]);
    assert!(!succeeded, "{said}");
    assert!(said.contains("10.0.0.2 is on rxe0"), "{said}");
}
