//! The program on the simulated fabric, and what it prints.

use std::process::{Command, Output};

fn ticker(arguments: &[&str]) -> (bool, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_ticker")).args(arguments).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.success(), text(&stdout), text(&stderr))
}

#[test]
fn the_demo() {
    let (success, output, errors) = ticker(&["demo"]);
    assert!(success && errors.is_empty(), "{output}{errors}");
    for line in [
        "gaps: session 1, has all 2000 ticks; so far 2000 in order",
        "late joiner: session 1, has all 4000 ticks; so far 2000 in order, 0 of them replayed, 2000 by snapshot",
        "restarted feed: session 2, has all 2000 ticks; so far 6000 in order",
        " orders accepted, 0 refused",
    ] {
        assert!(output.contains(line), "{line} is not in\n{output}");
    }
    assert!(!output.contains("2000 in order, 0 of them replayed, 0 by"), "nothing was lost:\n{output}");
}

/// The venue and the traders share an address, and the first report goes to a full disk.
#[test]
fn the_demo_on_one_host() {
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let arguments = ["demo", "--ticks", "20", "--local", "10.99.0.1"];
    let program = Command::new(env!("CARGO_BIN_EXE_ticker")).args(arguments).stdout(full).output();
    let said = program.expect("the program starts").stderr;
    assert_eq!(String::from_utf8_lossy(&said), "ticker: standard output: No space left on device (os error 28)\n");
}

/// Each error is one line with a remedy.
#[test]
fn user_errors() {
    for (arguments, expected) in [
        ("--group 10.1.1.1", "10.1.1.1 cannot be joined (EINVAL): choose a multicast address, such as 239.1.1.1"),
        ("--venue 0.0.0.0", "0.0.0.0 is not an address of an RDMA device here (EINVAL): choose one that"),
        ("--local 0.0.0.0", "0.0.0.0 is not an address of an RDMA device here (EINVAL): choose one that"),
    ] {
        let arguments: Vec<_> = ["demo"].into_iter().chain(arguments.split(' ')).collect();
        let (success, output, errors) = ticker(&arguments);
        assert!(!success && errors.contains(expected) && errors.lines().count() == 1, "{output}{errors}");
    }
}

#[test]
#[cfg(not(feature = "verbs"))]
fn real_devices_need_a_feature() {
    let (success, _, errors) = ticker(&["exchange", "--listen", "10.0.0.1:7400"]);
    assert!(!success && errors.contains("build with `--features verbs`, or run `ticker demo`"), "{errors}");
}
