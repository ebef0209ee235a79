//! Limits on the size of files, functions, xtask and README.md. `cargo test -p xtask --test size -- --nocapture` prints
//! the sizes that docs/verification.md states.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test; its output is for documents")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// In lines, of all files in `xtask/src`.
const XTASK: usize = 3500;

/// In lines.
const FILE: usize = 450;

/// In lines, from that of `fn` to that of the closing brace.
const FUNCTION: usize = 120;

/// The folders of the product crates.
const PRODUCT: [&str; 8] = ["proto/", "sim/", "verbs/", "trace/", "io-common/", "io-mio/", "io-epoll/", "io-blocking/"];

/// The folders of programs inside of them.
const PROGRAMS: [&str; 2] = ["verbs/check/", "trace/replay/"];

/// The committed Rust files: path and text.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(&root).output().unwrap();
    let paths = String::from_utf8(listed.stdout).unwrap();
    paths.lines().map(|path| (path.to_owned(), fs::read_to_string(root.join(path)).unwrap())).collect()
}

/// The functions of a formatted file that have more than one line: the first line, and the number of lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_start = |at: &usize| {
        let mut words = lines[*at].split_whitespace();
        let is_qualifier =
            |word: &&str| word.starts_with("pub") || ["const", "async", "unsafe", "extern", "\"C\""].contains(word);
        words.find(|word| !is_qualifier(word)) == Some("fn")
    };
    // The next line of the same indent that is not part of the signature ends the function.
    let length = |at: usize| {
        let is_next =
            |line: &&str| !line.is_empty() && indent(line) <= indent(lines[at]) && !line.trim_start().starts_with(')');
        let is_next = |line: &&str| is_next(line) && !["where", "{"].contains(&line.trim());
        let end = lines[at + 1..].iter().position(is_next)?;
        lines[at + 1 + end].trim_start().starts_with('}').then_some(end + 2)
    };
    let starts = (0..lines.len()).filter(is_start);
    starts.filter_map(|at| Some((lines[at], length(at)?))).filter(|(line, _)| !line.ends_with('}')).collect()
}

#[test]
fn files_and_functions_are_not_longer_than_the_limits() {
    let (mut file, mut function) = ((0, String::new()), (0, String::new()));
    for (path, text) in files() {
        for (line, lines) in functions(&text) {
            function = function.max((lines, format!("{path}: {line}")));
        }
        file = file.max((text.lines().count(), path));
    }
    println!("longest file: {file:?}; longest function: {function:?}");
    assert!(file.0 <= FILE, "{file:?}");
    assert!(function.0 <= FUNCTION, "{function:?}");
    assert!(function.0 > FUNCTION / 2, "functions are not found");
}

#[test]
fn a_function_ends_at_its_own_brace() {
    let text = "impl A {\n    pub(crate) const fn f(\n        a: u8,\n    ) -> u8 {\n        {\n        }\n    }\n\n    \
                fn g() {}\n    fn h();\n    fn i()\n    where\n        A: B,\n    {\n    }\n}\nfn j() {\n}\n";
    let found: Vec<_> = functions(text).into_iter().map(|(line, lines)| (line.trim(), lines)).collect();
    assert_eq!(found, [("pub(crate) const fn f(", 6), ("fn i()", 5), ("fn j() {", 2)]);
}

#[test]
fn xtask_is_not_larger_than_its_limit() {
    let (mut product, mut own, mut cross, mut xtask) = (0, 0, 0, 0);
    for (path, text) in files() {
        let lines = text.lines().count();
        if path.starts_with("xtask/src/") {
            xtask += lines;
        } else if ["tests/", "fuzz/"].iter().any(|folder| path.starts_with(folder)) {
            cross += lines;
        } else if PRODUCT.iter().any(|folder| path.starts_with(folder))
            && !PROGRAMS.iter().any(|folder| path.starts_with(folder))
        {
            // Tests are in folders and files of their own, or in a module at the end of a file.
            let is_test = path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/benches/");
            let code = text.find("#[cfg(test)]\nmod tests {").map_or(text.as_str(), |end| &text[..end]).lines().count();
            let code = if is_test { 0 } else { code };
            product += code;
            own += lines - code;
        }
    }
    println!("lines: product {product}, own tests {own}, tests across crates and fuzz targets {cross}, xtask {xtask}");
    assert!(product > 0 && own > 0 && cross > 0 && xtask > 0);
    assert!(xtask <= XTASK, "{xtask} lines in xtask/src, {XTASK} at most");
}

/// As wc(1) counts them.
#[test]
fn the_readme_has_at_most_700_words() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!((100..=700).contains(&words), "{words} words in README.md, 700 at most");
}
