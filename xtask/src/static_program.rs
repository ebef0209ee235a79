//! The example `handshake`, linked statically: it manages connections without librdmacm, libibverbs and rdma-sys.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use cmid_softroce::Kernel;

use crate::checks::{dependencies, without_pkg_config};
use crate::context::{Context, output};
use crate::guest;
use crate::step::OutOfReach;

const PROGRAM: &str = "handshake";
const TARGET: &str = "x86_64-unknown-linux-musl";

/// The functions, then the pair. The variable `ours` holds the program's path.
const SCRIPT: &str = concat!(
    include_str!("pairs.sh"),
    "\n",
    r#"pair "100 connections" "listening 7400" "\"\$ours\" serve 10.99.0.2:7400 -C 100" "\"\$ours\" connect 10.99.0.2:7400 -C 100"
cat /tmp/first /tmp/second
summary
"#
);

/// Builds it, checks it, and makes connections with it in the VM.
pub(crate) fn build_and_run(context: &Context, kernel: Kernel) -> Result<()> {
    build(context)?;
    guest::run(kernel, 120, &command(context), Vec::new())
}

/// Builds it for musl, without headers of rdma-core, and checks that it loads no library.
fn build(context: &Context) -> Result<()> {
    ensure!(!dependencies(context, PROGRAM)?.contains("rdma-sys"), "{PROGRAM} depends on rdma-sys");
    add_target(context)?;
    without_pkg_config(context, &["build", "--release", "--package", PROGRAM, "--target", TARGET])?;
    let program = path(context);
    let headers = output(Command::new("readelf").args(["--wide", "--dynamic", "--program-headers"]).arg(&program))?;
    let wanted = wants(&headers);
    ensure!(wanted.is_empty(), "{} is not static:\n{}", program.display(), wanted.join("\n"));
    Ok(())
}

/// The command to run in the VM.
fn command(context: &Context) -> Vec<OsString> {
    let mut variable = OsString::from("ours=");
    variable.push(path(context));
    vec!["env".into(), variable, "sh".into(), "-c".into(), SCRIPT.into()]
}

fn path(context: &Context) -> PathBuf {
    context.target().join(TARGET).join("release").join(PROGRAM)
}

/// Installs the standard library for the target if it is missing.
fn add_target(context: &Context) -> Result<()> {
    let mut sysroot = Command::new("rustc");
    sysroot.args(["--print", "target-libdir", "--target", TARGET]).current_dir(&context.root);
    if PathBuf::from(output(&mut sysroot)?.trim_end()).exists() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    if add.args(["target", "add", TARGET]).current_dir(&context.root).status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(OutOfReach("the standard library for musl").into())
}

/// The lines of readelf that name a library or a program interpreter.
fn wants(headers: &str) -> Vec<&str> {
    headers.lines().filter(|line| line.contains("(NEEDED)") || line.trim_start().starts_with("INTERP")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_programs_are_recognized() {
        let this = std::env::current_exe().unwrap();
        let headers = output(Command::new("readelf").args(["--wide", "--dynamic", "--program-headers"]).arg(this));
        let headers = headers.unwrap();
        let wanted = wants(&headers);
        assert!(wanted.iter().any(|line| line.contains("libc.so")), "{headers}");
        assert!(wanted.iter().any(|line| line.contains("INTERP")), "{headers}");
    }
}
