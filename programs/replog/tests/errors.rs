//! Errors of users: each is one line with a remedy.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// Runs the program, which must fail with one line. Returns the line.
fn fails(arguments: &[&str]) -> String {
    fails_on(Stdio::null(), arguments)
}

fn fails_on(stdout: Stdio, arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_replog"));
    let Output { status, stderr, .. } = program.args(arguments).stdout(stdout).output().expect("the program starts");
    let said = String::from_utf8(stderr).expect("text");
    assert!(!status.success() && said.lines().count() == 1 && said.starts_with("replog: "), "{said}");
    said
}

/// Runs a replica at these addresses, which must fail.
fn serve_fails(replica: &str, client: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("text");
    let transport = ["--transport", "tcp"];
    fails(
        &[&["serve", "--id", "0", "--replica", replica, "--client", client, "--folder", folder][..], &transport]
            .concat(),
    )
}

#[test]
fn numbers_are_in_range() {
    for arguments in ["torture --election-timeout 0", "bench --election-timeout 3600001", "bench --seconds 86401"] {
        let program = Command::new(env!("CARGO_BIN_EXE_replog")).args(arguments.split(' ')).output();
        assert_eq!(program.expect("the program starts").status.code(), Some(2), "{arguments}");
    }
}

#[test]
fn the_disk_of_the_output_is_full() {
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let said = fails_on(full.into(), &["world", "/dev/null"]);
    assert_eq!(said, "replog: standard output: No space left on device (os error 28)\n");
}

/// A server that sends a byte now and then.
#[test]
fn a_slow_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let addr = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The greeting, the length of a reply, and its bytes.
            let _ = stream.write_all(&replog::wire::GREETING).and_then(|()| stream.write_all(&[0, 0, 64, 0]));
            while stream.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(100));
            }
        }
    });
    assert!(fails(&["read", "--client", &addr, "1"]).contains("does not answer: timed out"));
}

#[test]
fn a_port_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("listen");
    let addr = taken.local_addr().expect("an address").to_string();
    assert!(serve_fails(&addr, "127.0.0.1:0").contains("select another port"));
    assert!(serve_fails("127.0.0.1:0", &addr).contains("select another port"));
}

/// The address of the first of two replicas is in use, so both end after they have opened the folder.
#[test]
fn a_folder_belongs_to_another_replica() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("listen");
    let addr = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("text");
    let serve = |id| {
        let addresses = ["--replica", &addr, "--replica", &addr, "--client", "127.0.0.1:0", "--transport", "tcp"];
        fails(&[&["serve", "--id", id, "--folder", folder][..], &addresses].concat())
    };
    assert!(serve("1").contains("is in use"));
    let said = serve("0");
    assert!(said.contains("is of replica 1: give --id 1, or another --folder"), "{said}");
    assert!(serve("1").contains("is in use"));
}

#[test]
fn an_address_is_of_another_machine() {
    // An address for documentation (RFC 5737).
    assert!(serve_fails("192.0.2.1:7500", "127.0.0.1:0").contains("select one of `ip address`"));
}

#[test]
fn the_number_of_a_replica_has_no_address() {
    let said =
        fails(&["serve", "--id", "3", "--replica", "127.0.0.1:1", "--client", "127.0.0.1:0", "--folder", "/tmp"]);
    assert!(said.contains("give --replica 4 times"), "{said}");
}

#[test]
fn a_replica_does_not_run() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("an address").to_string();
    assert!(fails(&["read", "--client", &port, "1"]).contains("start the replica"));
    assert!(fails(&["append", "--client", &port, "--limit", "0", "x"]).contains("start a majority"));
}

#[test]
fn a_replica_has_another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let addr = listener.local_addr().expect("an address").to_string();
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"replog\0\x09").expect("a greeting");
        stream
    });
    let said = fails(&["append", "--client", &addr, "x"]);
    assert!(said.contains("has version 9") && said.contains("install one version everywhere"), "{said}");
    drop(peer.join());
}

#[test]
fn a_peer_has_another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let addr = listener.local_addr().expect("an address").to_string();
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a replica");
        stream.write_all(b"replgp\x09\x01").expect("a greeting");
        stream
    });
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("text");
    let arguments = ["serve", "--id", "0", "--replica", "127.0.0.1:0", "--replica", &addr, "--transport", "tcp"];
    let said = fails(&[&arguments[..], &["--client", "127.0.0.1:0", "--folder", folder]].concat());
    assert!(said.contains("has version 9") && said.contains("install one version everywhere"), "{said}");
    drop(peer.join());
}

#[test]
#[cfg(not(feature = "verbs"))]
fn real_devices_need_a_feature() {
    let said =
        fails(&["serve", "--id", "0", "--replica", "127.0.0.1:1", "--client", "127.0.0.1:0", "--folder", "/tmp"]);
    assert!(said.contains("build with `--features verbs`") && said.contains("`--transport tcp`"), "{said}");
}
