//! The inputs of the fuzz target `world`: `cargo xtask fuzz world`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The limits of the committed inputs.
const MOST_FILES: usize = 300;
const LARGEST_FILE: usize = 4096;

fn committed() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/world");
    let entries = std::fs::read_dir(&folder).expect("a corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn every_committed_input_keeps_the_promises() {
    let files = committed();
    assert!(!files.is_empty() && files.len() <= MOST_FILES, "{} files", files.len());
    for file in files {
        let data = std::fs::read(&file).expect("an input");
        assert!(data.len() <= LARGEST_FILE, "{} is large", file.display());
        eprintln!("{}", file.display());
        replog::world::run_bytes(&data);
    }
}

#[test]
fn the_program_prints_the_events_of_an_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input");
    std::fs::write(&input, [0, 1, 1, 2, 20, 30, 0]).expect("an input");
    let output = Command::new(env!("CARGO_BIN_EXE_replog")).arg("world").arg(&input).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for event in ["replica 1 -> replica 2: ", "replica 2: fault: crash of replica 2", "replica 2: starts"] {
        assert!(text.contains(event), "{event} is not in\n{text}");
    }
}
