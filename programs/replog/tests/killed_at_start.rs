//! A replica that is killed while it creates its database.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redb::Database;

/// Starts a replica with this folder.
fn start(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replog"));
    command.args(["serve", "--id", "0", "--replica", "127.0.0.1:0", "--client", "127.0.0.1:0"]);
    command.args(["--transport", "tcp", "--folder"]).arg(folder).stdout(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Waits until the folder has a file that is not empty: its contents are being written.
fn wait_for_bytes(folder: &Path) {
    let start = Instant::now();
    let has_bytes = || {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).any(|file| file.len() > 0)
    };
    while !has_bytes() {
        assert!(start.elapsed() < Duration::from_secs(30), "no file is written");
    }
}

#[test]
fn a_replica_that_is_killed_while_it_creates_its_database_starts_again() {
    for delay in 0..10 {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("0");
        let mut first = start(&folder);
        wait_for_bytes(&folder);
        thread::sleep(Duration::from_micros(200 * delay));
        first.kill().expect("the replica runs");
        first.wait().expect("a child");
        // What has the name of the log is a database.
        Database::create(folder.join("log.redb")).unwrap_or_else(|error| panic!("after {} µs: {error}", 200 * delay));
    }
}
