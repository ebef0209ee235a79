//! `cargo xtask chroot`: runs a command in another release of Debian, made by debootstrap, with this workspace and
//! this Rust.
//!
//! The system stays in the cache, so packages are installed once. Builds go to a folder of their own in the target
//! directory. The VM that the command boots has the chroot as its root, and so that release's rdma-core. Its kernel
//! is the one that the release's apt offers.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use cmid_softroce::{cache_directory, packages};

use crate::context::Context;

/// Debian 13.
const TRIXIE: &str = "trixie";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The release of Debian, by its code name
    #[arg(long, default_value = TRIXIE, value_name = "NAME")]
    release: String,
    /// Use another system, in which the programme installs nothing
    #[arg(long)]
    bare: bool,
    /// The command. It runs in the working directory, as root
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command. A status other than 0 is an error.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    enter(context, &arguments.release, arguments.bare, &env::current_dir()?, &arguments.command)
}

/// Runs the daily programme on Debian 13: with its rdma-core, and its own kernel in the VM.
pub(crate) fn programme(context: &mut Context) -> Result<()> {
    enter(context, TRIXIE, false, &context.root, &["cargo", "xtask", "test"].map(OsString::from))
}

/// Runs a script in the bare Debian 13.
pub(crate) fn bare(context: &Context, script: &str) -> Result<()> {
    // Only if this succeeds is the compiler the release's own: it comes before the host's in PATH.
    let script = format!("{}\n{script}", include_str!("bare.sh"));
    enter(context, TRIXIE, true, &context.root, &["sh", "-euc", &script].map(OsString::from))
}

fn enter(context: &Context, release: &str, bare: bool, directory: &Path, command: &[OsString]) -> Result<()> {
    packages::ensure(&["debootstrap", "debian-archive-keyring", "util-linux"])?;
    let name = if bare { format!("debian-{release}-bare") } else { format!("debian-{release}") };
    let apt = tempfile::tempdir().context("a temporary directory")?;
    let mut script = Command::new(context.root.join("xtask/scripts/chroot.sh"));
    script.args([&name, release]).arg(cache_directory()?).arg(apt.path()).arg(context.target().join(&name));
    script.arg(&context.root).arg(directory).args(command);
    let status = script.status().context("chroot.sh")?;
    ensure!(status.success(), "in {name}: {status}");
    Ok(())
}
