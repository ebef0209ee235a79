//! What may only fall: the public names of the core, and attributes that tell the compiler how to inline.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test; its output is for documents")]

use std::fs;
use std::path::{Path, PathBuf};

/// `#[inline]` in `proto/src` and `verbs/src`.
const INLINE: usize = 38;
/// Public methods of `Core`.
const METHODS: usize = 42;
/// Names at the root of `proto`.
const NAMES: usize = 55;

/// The Rust files below a folder of the workspace, with their text.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files
}

fn falls(what: &str, found: usize, most: usize) {
    println!("{what}: {found}, at most {most}");
    assert!(found > 0, "{what} are not found");
    assert!(found <= most, "{what}: {found}, more than {most}");
}

#[test]
fn the_compiler_decides_what_it_inlines() {
    let texts = files("proto/src").into_iter().chain(files("verbs/src"));
    falls("inlining attributes", texts.map(|(_, text)| text.matches("#[inline").count()).sum(), INLINE);
}

#[test]
fn the_public_names_of_the_core_are_few() {
    let methods = |text: &str| {
        let of_core = text.split("\nimpl ").filter(|block| block.starts_with("Core {"));
        of_core.map(|block| block.matches("\n    pub fn ").count()).sum::<usize>()
    };
    falls("public methods of Core", files("proto/src/machine").iter().map(|(_, text)| methods(text)).sum(), METHODS);
    let root = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/src/lib.rs")).unwrap();
    let exports = root.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    falls("names at the root", exports.map(|list| list.matches(',').count() + 1).sum(), NAMES);
}
