//! `cargo xtask coverage`: which lines of `cmid-proto` its tests and the fuzz corpora run, by cargo-llvm-cov.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::packages;

use crate::context::{Context, output};
use crate::tools::{LLVM_COV, succeeds};

/// How many lines of `cmid-proto` may be run by no test. The number may only fall.
const BUDGET: &str = "61";

/// What runs.
const TESTS: &[&str] =
    &["llvm-cov", "--package", "cmid-proto", "--package", "cmid-reference", "--features", "cmid-proto/std", "--quiet"];

/// Lists the files and the lines that are not run; fails if they are more than the budget.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    let mut command = LLVM_COV.command(context)?;
    command.args(TESTS).args(["--lib", "--tests", "--show-missing-lines", "--fail-uncovered-lines", BUDGET]);
    // What reads the compiler's counts has to be of the compiler's version of LLVM.
    if !succeeds(Command::new("rustup").args(["component", "add", "llvm-tools"])) {
        let folder = of_debian()?;
        command.env("LLVM_COV", folder.join("llvm-cov")).env("LLVM_PROFDATA", folder.join("llvm-profdata"));
    }
    let status = command.status().context("cargo-llvm-cov")?;
    ensure!(status.success(), "cargo-llvm-cov failed ({status}): at most {BUDGET} lines may be run by no test");
    Ok(())
}

/// Installs the tools of that LLVM from Debian; returns the folder they are in.
fn of_debian() -> Result<PathBuf> {
    let compiler = output(Command::new("rustc").arg("-vV"))?;
    let version = compiler.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next()).context("rustc names no version of LLVM")?;
    packages::ensure(&[&format!("llvm-{major}")])?;
    Ok(PathBuf::from(format!("/usr/lib/llvm-{major}/bin")))
}
