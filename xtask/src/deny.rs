//! Checks the dependencies with cargo-deny and `deny.toml`.

use std::process::Command;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::step::OutOfReach;
use crate::tools::{DENY, succeeds};

/// The database of advisories.
const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// Checks licences, bans and sources. Needs no network once the crates are fetched.
pub(crate) fn licences(context: &mut Context) -> Result<()> {
    context.cargo(&["fetch", "--locked"], &[])?;
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
