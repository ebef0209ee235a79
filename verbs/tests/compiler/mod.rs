//! The C compiler, for tests that compare this crate with headers of C.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::Path;

/// Compiles a source with these arguments, and returns the standard output. Fails without a compiler or a header.
pub(crate) fn compile(name: &str, source: &str, arguments: &[&str]) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, source).expect("a folder for temporary files");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let output = compiler.to_command().args(arguments).arg(&file).output().expect("a C compiler");
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Fails if a condition of C does not hold where these headers are included.
pub(crate) fn assert_all(name: &str, headers: &[&str], conditions: impl Iterator<Item = String>) {
    let includes = headers.iter().map(|header| format!("#include <{header}>\n"));
    let asserts = conditions.map(|condition| format!("_Static_assert({condition}, {condition:?});\n"));
    compile(name, &includes.chain(asserts).collect::<String>(), &["-fsyntax-only"]);
}
