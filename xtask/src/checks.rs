//! The steps on the host that are more than one command of cargo.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_softroce::packages;

use crate::context::{Context, output, run};
use crate::step::OutOfReach;
use crate::tools::{DENY, HACK, LLVM_COV, SEMVER, add_target, succeeds};

/// The allowed dependencies of cmid-proto, including those at compile time.
const PROTO_DEPENDENCIES: &[&str] = &[
    "cmid-proto",
    "bitflags",
    "serde",
    "serde_core",
    "serde_derive",
    "static_assertions",
    "thiserror",
    "thiserror-impl",
    "proc-macro2",
    "quote",
    "syn",
    "unicode-ident",
];

/// The crates that applications depend on.
#[rustfmt::skip]
const PRODUCT: &[&str] = &[
    "cmid-proto", "cmid-sim", "cmid-verbs", "cmid-trace", "cmid-io-common", "cmid-mio", "cmid-epoll", "cmid-blocking", "cmid-tokio",
];

/// The maximum number of lines of `cmid-proto` that no test runs. The number may only decrease.
const UNCOVERED: &str = "150";

/// The minimum number of `compile_fail` examples of cmid-verbs. Without it their check would pass if they were removed.
const COMPILE_FAIL: usize = 10;

/// The database of advisories.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// The workspaces. Each has its lock file.
const WORKSPACES: [&str; 4] =
    ["Cargo.toml", "fuzz/Cargo.toml", "programs/replog/fuzz/Cargo.toml", "benches/peers/Cargo.toml"];

/// Checks that the lock file of each workspace fits, and licences, bans and sources. Needs no network once the crates are
/// fetched.
pub(crate) fn licences(context: &mut Context) -> Result<()> {
    for workspace in WORKSPACES {
        context.cargo(&["fetch", "--locked", "--manifest-path", workspace], &[])?;
    }
    let what = ["check", "--allow", "no-license-field", "licenses", "bans", "sources"];
    DENY.run(context, &[&["deny", "--offline", "--locked"], &what[..]].concat())
}

/// Checks advisories. Their database is a git repository on the network.
pub(crate) fn advisories(context: &mut Context) -> Result<()> {
    // git waits for minutes for a server that does not answer.
    let mut reach = Command::new("timeout");
    reach.args(["60", "git", "ls-remote", "--quiet", "--exit-code", DATABASE, "HEAD"]);
    if !succeeds(reach.env("GIT_TERMINAL_PROMPT", "0")) {
        bail!(OutOfReach("the database of advisories"));
    }
    DENY.run(context, &["deny", "--locked", "check", "advisories"])
}

/// Checks that the core depends on nothing that does I/O.
pub(crate) fn proto_dependencies(context: &mut Context) -> Result<()> {
    let strangers: Vec<_> = dependencies(context, &["cmid-proto", "--all-features"])?
        .into_iter()
        .filter(|name| !PROTO_DEPENDENCIES.contains(&name.as_str()))
        .collect();
    ensure!(strangers.is_empty(), "cmid-proto must not depend on {}", strangers.join(", "));
    Ok(())
}

/// Runs cargo without the descriptions of installed libraries, so that rdma-sys does not build.
pub(crate) fn without_pkg_config(context: &Context, arguments: &[&str]) -> Result<()> {
    let nothing = tempfile::tempdir().context("a temporary directory")?;
    let hidden: &OsStr = nothing.path().as_os_str();
    context.cargo(arguments, &[("PKG_CONFIG_PATH", hidden), ("PKG_CONFIG_LIBDIR", hidden)])
}

/// Checks that every product crate compiles without a warning with each of its features alone, and with none.
pub(crate) fn features(context: &mut Context) -> Result<()> {
    let packages = PRODUCT.iter().flat_map(|package| ["--package", package]);
    let arguments = ["hack", "clippy", "--quiet", "--each-feature", "--lib"].into_iter().chain(packages);
    HACK.run(context, &arguments.chain(["--", "--deny", "warnings"]).collect::<Vec<_>>())
}

/// Compares the interface of each product crate with that of the last release before this commit: the latest tag `v*`.
pub(crate) fn interface(context: &mut Context) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["tag", "--list", "v*", "--merged", "HEAD", "--sort", "-version:refname"]).current_dir(&context.root);
    let tags = output(&mut git)?;
    let Some(release) = tags.lines().next() else { bail!(OutOfReach("a release to compare with")) };
    let packages = PRODUCT.iter().flat_map(|package| ["--package", package]);
    let arguments = ["semver-checks", "--baseline-rev", release].into_iter().chain(packages);
    SEMVER.run(context, &arguments.collect::<Vec<_>>())
}

/// The names of all packages that a package is linked with, itself included. `package` is its name and options.
pub(crate) fn dependencies(context: &Context, package: &[&str]) -> Result<BTreeSet<String>> {
    let words = ["tree", "-e", "normal", "--prefix", "none", "--format", "{p}", "-p"];
    let tree = context.cargo_output(&[&words, package].concat())?;
    Ok(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Runs the tests of all crates but cmid-verbs, whose tests are steps of their own, one for each of its bindings. The conformance suite on the simulator compares its run with the recorded one.
pub(crate) fn tests(context: &mut Context) -> Result<()> {
    let report = context.target().join("conformance-reports/sim-fast.json");
    fs::create_dir_all(context.target().join("conformance-reports")).context("the folder of reports")?;
    if report.exists() {
        fs::remove_file(&report).context("an old report")?;
    }
    let words = ["test", "--workspace", "--exclude", "cmid-verbs", "--all-features", "--tests"];
    context.cargo(&words, &[("CMID_REPORT", report.as_os_str())])?;
    ensure!(report.exists(), "the run left no report at {}", report.display());
    Ok(())
}

/// Runs the tests of cmid-verbs, with its own bindings. None of its `compile_fail` examples may compile, each with the error
/// code that it names.
pub(crate) fn tests_of_verbs(context: &mut Context) -> Result<()> {
    let rustdoc = context.root.join("xtask/scripts/rustdoc.sh");
    let words = ["test", "--package", "cmid-verbs", "--features", "headers,scripted-kernel"];
    let refused = refused(&context.cargo_tells(&words, &[("RUSTDOC", rustdoc.as_os_str())])?);
    ensure!(refused >= COMPILE_FAIL, "{refused} examples do not compile, {COMPILE_FAIL} at least should be there");
    Ok(())
}

/// Runs the tests of loops that wait for what another thread writes to memory, with optimization. They use no other crate.
pub(crate) fn flag_loop(context: &mut Context) -> Result<()> {
    let program = context.target().join("flag_loop");
    let mut rustc = Command::new("rustc");
    rustc.args(["--test", "--edition", "2024", "-C", "opt-level=3", "verbs/tests/flag_loop.rs", "-o"]).arg(&program);
    output(rustc.current_dir(&context.root))?;
    print!("{}", output(&mut Command::new(program))?);
    Ok(())
}

/// Builds the conformance suite with the bindings of rdma-sys instead of those of cmid-verbs, in a folder of its own.
pub(crate) fn conformance_with_rdma_sys(context: &Context) -> Result<()> {
    let words =
        "build --release -p cmid-conformance --features verbs,cmid-verbs/rdma-sys --target x86_64-unknown-linux-gnu";
    context.cargo(&words.split(' ').collect::<Vec<_>>(), &[])
}

/// Counts the examples of cmid-verbs that did not compile, in the output of the tests.
fn refused(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("test verbs/") && line.ends_with(" - compile fail ... ok")).count()
}

/// Lists the lines of `cmid-proto` that its tests and the fuzz corpora do not run. Fails if they are more than the budget.
pub(crate) fn coverage(context: &mut Context) -> Result<()> {
    let mut command = LLVM_COV.command(context)?;
    let words = "llvm-cov --profile coverage --package cmid-proto --package cmid-model --features cmid-proto/std,cmid-model/devices";
    command.args(words.split(' '));
    command.args(["--quiet", "--lib", "--tests", "--show-missing-lines", "--fail-uncovered-lines", UNCOVERED]);
    // The tools that read the compiler's counts must have the compiler's version of LLVM.
    if !succeeds(Command::new("rustup").args(["component", "add", "llvm-tools"])) {
        let compiler = output(Command::new("rustc").arg("-vV"))?;
        let version = compiler.lines().find_map(|line| line.strip_prefix("LLVM version: "));
        let major = version.and_then(|version| version.split('.').next()).context("rustc names no version of LLVM")?;
        packages::ensure(&[&format!("llvm-{major}")])?;
        let folder = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
        command.env("LLVM_COV", folder.join("llvm-cov")).env("LLVM_PROFDATA", folder.join("llvm-profdata"));
    }
    run(&mut command).with_context(|| format!("at most {UNCOVERED} lines may be run by no test"))
}

/// Runs the program of `benches/core`, which counts with valgrind.
pub(crate) fn bench(context: &Context, arguments: &[&str]) -> Result<()> {
    packages::ensure(&["valgrind"])?;
    let run = ["run", "--profile", "bench", "--quiet", "--package", "cmid-bench", "--"];
    context.cargo(&[&run, arguments].concat(), &[])
}

/// The simulator as WebAssembly, in a browser without a screen: its page shows what the same program prints here.
pub(crate) fn browser(context: &Context) -> Result<()> {
    add_target(context, "wasm32-wasip1")?;
    context.script("browser.sh", &["chromium-headless-shell"])
}

/// Runs the demonstrations on the simulated fabric, the one that is built soonest first. Without optimization, because
/// building takes longer than running.
pub(crate) fn demo(context: &mut Context) -> Result<()> {
    let rping = "rdma-core's ping, on each driver, and an id that moves between channels";
    for (program, what) in [("rping", rping), ("replog", "a log on three replicas, of which one dies")] {
        println!("\n==> {program}: {what}. A first build takes a minute or more.");
        context.program(&format!("--package {program}"), ["demo"])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_examples_that_do_not_compile_count() {
        let said = "test verbs/src/data/mr.rs - data::mr::Mr (line 62) - compile fail ... ok\n\
                    test verbs/src/data/mr.rs - data::mr::Mr (line 73) - compile fail ... FAILED\n\
                    test verbs/src/lib.rs - (line 8) - compile ... ok\n";
        assert_eq!(refused(said), 1);
    }
}
