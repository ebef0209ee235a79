//! Commands of the VM: programs of the release build, and shell scripts (tests/kernel/scripts). Scripts on the host
//! (xtask/scripts).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cmid_softroce::{Kernel, Options, packages};

use crate::backend::Backend;
use crate::context::Context;

/// Includes a script, after the shell functions `pair` and `summary` on request.
macro_rules! text {
    (pairs, $name:literal) => {
        concat!(text!("pairs.sh"), "\n", text!($name))
    };
    ($name:literal) => {
        include_str!(concat!("../../tests/kernel/scripts/", $name))
    };
}

pub(crate) const CHECK: &str = text!("check.sh");
pub(crate) const CMTIME: &str = text!("cmtime.sh");
pub(crate) const HANDSHAKE: &str = text!(pairs, "handshake.sh");
pub(crate) const SANITIZE: &str = text!("sanitize.sh");

/// A program with its arguments. The suites read a variable with the backend of cmid-verbs.
pub(crate) fn program(context: &Context, backend: Backend, words: &[&str]) -> Vec<OsString> {
    let mut command = vec!["env".into(), variable("CMID_BACKEND", backend.name())];
    let (program, arguments) = words.split_at(1);
    command.extend(program.iter().map(|program| context.release(program).into()));
    command.extend(arguments.iter().map(OsString::from));
    command
}

/// A script with these variables. Variables hold paths, because these may contain any character.
pub(crate) fn script(text: &str, backend: Backend, variables: &[(&str, OsString)]) -> Vec<OsString> {
    let mut command = vec!["env".into(), variable("CMID_BACKEND", backend.name())];
    command.extend(variables.iter().map(|(name, value)| variable(name, value)));
    command.extend(["sh", "-c", text].map(OsString::from));
    command
}

fn variable(name: &str, value: impl AsRef<OsStr>) -> OsString {
    [OsStr::new(name), value.as_ref()].join(OsStr::new("="))
}

/// The product crates as packages, outside of the workspace.
pub(crate) fn product_crates(context: &mut Context) -> Result<()> {
    on_host(context, "packages.sh")
}

/// The book of docs/, and its links.
pub(crate) fn book(context: &mut Context) -> Result<()> {
    packages::ensure(&["linkchecker"])?;
    on_host(context, "book.sh")
}

/// The Debian package of the programs: it is unpacked, its programs run and its manual pages formatted.
pub(crate) fn debian_package(context: &mut Context) -> Result<()> {
    packages::ensure(&["dpkg-dev", "help2man", "man-db"])?;
    on_host(context, "deb.sh")
}

/// Runs a script of xtask/scripts on the host, with the path of the target directory.
pub(crate) fn on_host(context: &Context, name: &str) -> Result<()> {
    let mut command = Command::new(context.root.join("xtask/scripts").join(name));
    command.arg(context.target()).current_dir(&context.root);
    let status = command
        .envs(context.environment.iter().map(|(name, value)| (name, value)))
        .status()
        .with_context(|| name.to_owned())?;
    ensure!(status.success(), "xtask/scripts/{name}: {status}");
    Ok(())
}

/// cmid's rping against rdma-core's.
pub(crate) fn rping(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    script(text!(pairs, "rping.sh"), backend, &[("ours", context.release("rping").into())])
}

/// cmid's peer of ucmatose against rdma-core's.
pub(crate) fn ucmatose(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    script(text!(pairs, "ucmatose.sh"), backend, &[("ours", context.release("kernel-cmatose").into())])
}

/// cmid's peer of perftest against `ib_send_lat -R`.
pub(crate) fn perftest(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    script(text!(pairs, "perftest.sh"), backend, &[("ours", context.release("kernel-perftest").into())])
}

/// cmid's rping and rdma-core's on two machines with unlike kernels, each of which is the server in turn.
pub(crate) fn between_machines(context: &mut Context) -> Result<()> {
    let command = script(text!("machines.sh"), Backend::Kernel, &[("ours", context.release("rping").into())]);
    on_machines(&[Kernel::V6_1, Kernel::V6_12], &command)
}

/// ticker's venue on a machine and its traders on another, with a late joiner and a lost link.
pub(crate) fn ticker_between_machines(context: &mut Context) -> Result<()> {
    let command = script(text!("ticker-machines.sh"), Backend::Kernel, &[("ours", context.release("ticker").into())]);
    on_machines(&[Kernel::V6_12; 2], &command)
}

/// Runs a command on machines with these kernels, on one wire.
fn on_machines(kernels: &[Kernel], command: &[OsString]) -> Result<()> {
    let machine = |&kernel| Options { kernel, timeout: Duration::from_secs(300), ..Options::default() };
    let machines: Vec<_> = kernels.iter().map(machine).collect();
    let status = cmid_softroce::run_machines(&machines, command)?;
    ensure!(status == 0, "in one of the VMs: exit status {status}");
    Ok(())
}

/// ticker over a wire that loses packets.
pub(crate) fn ticker_loss(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    script(text!("ticker-loss.sh"), backend, &[("ours", context.release("ticker").into())])
}

/// Errors of users of replog and ticker.
pub(crate) fn user_errors(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    let [replog, ticker] = ["replog", "ticker"].map(|program| context.release(program).into());
    script(text!("user-errors.sh"), backend, &[("replog", replog), ("ticker", ticker)])
}

/// Datagrams and multicast messages between two processes, with every driver, and with rdma-core's udaddy and mckey.
pub(crate) fn datagrams(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    script(text!(pairs, "datagrams.sh"), backend, &[("ours", context.release("udping").into())])
}

/// The kernel's own re-registration, and the example `fencing` with it.
pub(crate) fn rereg(context: &Context, kernel: Kernel, backend: Backend) -> Vec<OsString> {
    let [rereg, fencing] = ["kernel-rereg", "fencing"].map(|program| context.release(program).into());
    let expect = can_reregister(kernel).into();
    let variables = [("shim", shim(context).into()), ("rereg", rereg), ("fencing", fencing), ("expect", expect)];
    script(text!("rereg.sh"), backend, &variables)
}

/// Programs under strace: the drivers block only in their event loop.
pub(crate) fn blocking(context: &Context, _: Kernel, backend: Backend) -> Vec<OsString> {
    let programs = ["kernel-waits", "rping", "conformance", "kernel-device"];
    let [waits, rping, conformance, device] = programs.map(|program| context.release(program).into());
    let variables = [("waits", waits), ("rping", rping), ("conformance", conformance), ("kernel_device", device)];
    script(text!("blocking.sh"), backend, &variables)
}

/// The library for LD_PRELOAD that passes `ibv_rereg_mr` to the kernel.
pub(crate) fn shim(context: &Context) -> PathBuf {
    context.release("libcmid_rereg_shim.so")
}

/// What soft-RoCE's driver in this kernel can re-register. It supports it since 6.5; Ubuntu's kernels are newer.
pub(crate) fn can_reregister(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 => "none",
        Kernel::V6_12 | Kernel::Ubuntu => "pd-access",
    }
}
