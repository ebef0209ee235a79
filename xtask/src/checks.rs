//! Checks of dependencies (with cargo-deny and `.deny.toml`), features, interfaces and spelling.

use crate::context::{Context, output};
use crate::step::OutOfReach;
use crate::tools::{DENY, HACK, SEMVER, TYPOS, succeeds};
use anyhow::{Context as _, Result, bail, ensure};
use std::{collections::BTreeSet, ffi::OsStr, process::Command};

/// The allowed dependencies of cmid-proto, including those at compile time.
const PROTO_DEPENDENCIES: &[&str] = &[
    "cmid-proto",
    "slab",
    "bitflags",
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
const PRODUCT: &[&str] =
    &["cmid-proto", "cmid-sim", "cmid-verbs", "cmid-trace", "cmid-io-common", "cmid-mio", "cmid-epoll", "cmid-blocking"];

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

/// Checks the spelling of names, comments and documents.
pub(crate) fn spelling(context: &mut Context) -> Result<()> {
    TYPOS.run(context, &[])
}

/// Checks that the core depends on nothing that does I/O.
pub(crate) fn proto_dependencies(context: &mut Context) -> Result<()> {
    let strangers: Vec<_> = dependencies(context, "cmid-proto")?
        .into_iter()
        .filter(|name| !PROTO_DEPENDENCIES.contains(&name.as_str()))
        .collect();
    ensure!(strangers.is_empty(), "cmid-proto must not depend on {}", strangers.join(", "));
    Ok(())
}

/// Checks that a driver with the real device needs nothing of rdma-core to build.
pub(crate) fn mio_without_rdma_core(context: &mut Context) -> Result<()> {
    without_pkg_config(context, &["build", "-p", "cmid-mio", "--features", "verbs"])
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

/// The names of all packages that a package is linked with, itself included.
pub(crate) fn dependencies(context: &Context, package: &str) -> Result<BTreeSet<String>> {
    let tree = context.cargo_output(&["tree", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"])?;
    Ok(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}
