//! `cargo xtask coverage`: lists the lines of `cmid-proto` that its tests and the fuzz corpora do not run, by
//! cargo-llvm-cov.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::packages;

use crate::context::{Context, output};
use crate::tools::{LLVM_COV, succeeds};

/// The maximum number of lines of `cmid-proto` that no test runs. The number may only decrease.
const BUDGET: &str = "56";

/// The arguments that select the tests.
const TESTS: &[&str] = &[
    "llvm-cov",
    "--package",
    "cmid-proto",
    "--package",
    "cmid-model",
    "--features",
    "cmid-proto/std,cmid-model/devices",
    "--quiet",
];

/// Lists the files and the lines that are not run. Fails if they are more than the budget.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    let mut command = LLVM_COV.command(context)?;
    command.args(TESTS).args(["--lib", "--tests", "--show-missing-lines", "--fail-uncovered-lines", BUDGET]);
    // The tools that read the compiler's counts must have the compiler's version of LLVM.
    if !succeeds(Command::new("rustup").args(["component", "add", "llvm-tools"])) {
        let folder = of_debian()?;
        command.env("LLVM_COV", folder.join("llvm-cov")).env("LLVM_PROFDATA", folder.join("llvm-profdata"));
    }
    let status = command.status().context("cargo-llvm-cov")?;
    ensure!(status.success(), "cargo-llvm-cov failed ({status}): at most {BUDGET} lines may be run by no test");
    Ok(())
}

/// Installs the tools of that LLVM from Debian. Returns their folder.
fn of_debian() -> Result<PathBuf> {
    let compiler = output(Command::new("rustc").arg("-vV"))?;
    let version = compiler.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next()).context("rustc names no version of LLVM")?;
    packages::ensure(&[&format!("llvm-{major}")])?;
    Ok(PathBuf::from(format!("/usr/lib/llvm-{major}/bin")))
}
