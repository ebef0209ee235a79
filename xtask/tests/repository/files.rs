//! The committed files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The paths of the files that these patterns of git match.
pub(crate) fn committed(patterns: &[&str]) -> Vec<String> {
    let listed = Command::new("git").arg("ls-files").args(patterns).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The text of a file. One that is removed is listed until its removal is committed; its text is empty.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// The files that these patterns match: path and text.
pub(crate) fn texts(patterns: &[&str]) -> Vec<(String, String)> {
    committed(patterns).into_iter().map(|path| (path.clone(), read(&path))).collect()
}
