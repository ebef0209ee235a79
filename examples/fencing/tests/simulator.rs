//! The program on the simulated fabric, with and without ibv_rereg_mr.

use std::process::{Command, Output};

fn fencing(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_fencing")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Checks the lines of the output that both ways have in common.
fn assert_fenced(said: &str) {
    for line in [
        "candidate A  writes \"x = 2; \": success",
        "candidate A  writes \"x = 3; \": remote access error",
        "candidate B  writes \"y = 2; \": success",
        "replica      the lane of A holds [\"x = 1; \", \"x = 2; \"] and nothing else",
        "A is fenced, B leads",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
}

#[test]
fn in_place() {
    let (succeeded, said) = fencing(&["--device", "sim", "--way", "in-place"]);
    assert!(succeeded, "{said}");
    assert_fenced(&said);
    assert!(said.contains("deposes A: re-registered in place"), "{said}");
}

#[test]
fn by_registering_anew() {
    let (succeeded, said) = fencing(&["--device", "sim", "--way", "anew"]);
    assert!(succeeded, "{said}");
    assert_fenced(&said);
    assert!(said.contains("deposes A: registered anew"), "{said}");
}
