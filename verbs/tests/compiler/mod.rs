//! The C compiler, for tests that compare this crate with headers of C.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::Write as _;
use std::process::Stdio;

/// Compiles a source with these arguments, and returns the standard output. Fails without a compiler or a header.
pub(crate) fn compile(name: &str, source: &str, arguments: &[&str]) -> String {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    // Not from a file: another test, at the same time, would replace it.
    let mut command = compiler.to_command();
    command.args(arguments).args(["-x", "c", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut compiler = command.spawn().expect("a C compiler");
    compiler.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("it reads");
    let output = compiler.wait_with_output().expect("a C compiler");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Fails if a condition of C does not hold where these headers are included.
pub(crate) fn assert_all(name: &str, headers: &[&str], conditions: impl Iterator<Item = String>) {
    let includes = headers.iter().map(|header| format!("#include <{header}>\n"));
    let asserts = conditions.map(|condition| format!("_Static_assert({condition}, {condition:?});\n"));
    compile(name, &includes.chain(asserts).collect::<String>(), &["-fsyntax-only"]);
}
