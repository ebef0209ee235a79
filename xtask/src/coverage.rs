//! `cargo xtask coverage`: which lines of `cmid-proto` its tests and the fuzz corpora run, by cargo-llvm-cov.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::context::Context;
use crate::tools::{LLVM_COV, succeeds};

/// How many lines of `cmid-proto` may be run by no test. The number may only fall.
const BUDGET: &str = "58";

/// What runs.
const TESTS: &[&str] =
    &["llvm-cov", "--package", "cmid-proto", "--package", "cmid-reference", "--features", "cmid-proto/std", "--quiet"];

/// Lists the files and the lines that are not run; fails if they are more than the budget.
pub(crate) fn run(context: &mut Context) -> Result<()> {
    // What reads the compiler's counts has to be of the compiler's own version of LLVM.
    let installed = succeeds(Command::new("rustup").args(["component", "add", "llvm-tools"]));
    ensure!(installed, "rustup does not install llvm-tools");
    let report = ["--lib", "--tests", "--show-missing-lines", "--fail-uncovered-lines", BUDGET];
    LLVM_COV.run(context, &[TESTS, &report].concat())
}
