//! `cargo xtask sanitize`: what has unsafe code runs under AddressSanitizer and LeakSanitizer, in the VM.
//!
//! rustc has both on board, so no other compiler is needed; only the options that ask for them are not stable yet. What is
//! linked in is instrumented; librdmacm and libibverbs are not, but their memory is the sanitizer's as well. So it sees when our
//! code uses what a library has freed, or goes past its end, and when anybody frees something twice or leaks it. What is freed
//! is overwritten; a library that follows a pointer in it crashes, which is reported.
//!
//! What it does not see: that a library reads past the end of an argument (Debian's have a memcpy of their own for that); what the
//! device does with registered memory; ids that are leaked, because librdmacm has a table of all. These the conformance
//! scenarios `nothing_is_left_*` count, which cannot run here: they ask glibc's allocator, which nobody uses.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use cmid_softroce::{Kernel, Options};

use crate::context::Context;
use crate::{compile_fail, guest, host, kernel_rereg};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel of the VM: 6.1 or 6.12
    #[arg(long, default_value_t)]
    pub(crate) kernel: Kernel,
    /// Run less: what CI runs each time
    #[arg(long)]
    quick: bool,
}

/// The VM is one of x86-64. Naming it keeps build scripts and macros, which run on the host, from being instrumented.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What is built for the VM.
const BUILD: &[&str] = &[
    "build",
    "--lib",
    "--bins",
    "-p",
    "cmid-conformance",
    "-p",
    "cmid-kernel-tests",
    "-p",
    "cmid-rereg-shim",
    "--features",
    "cmid-conformance/verbs",
];

/// Between them is what cargo takes for a blank. The second makes what is loaded later, libibverbs' providers and our shim, find
/// all of the sanitizer's functions in the program.
const FLAGS: &str = "-Zsanitizer=address\x1f-Clink-arg=-rdynamic";

/// What needs no device and has unsafe code. Not `tests/orders.rs`: loom switches stacks.
const HOST_TESTS: &[&str] = &["test", "-p", "cmid-verbs", "--lib", "--", "--quiet"];

/// A report ends the program with this status, which none of them has otherwise. The reports themselves go to files, so that
/// none is missed that a program's child makes.
const OPTIONS: &str = concat!(
    "exitcode=86:log_path=/tmp/sanitizer:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    // Who still uses it follows no pointer that is good by accident.
    ":max_free_fill_size=4096:free_fill_byte=219",
    // What is freed is kept from being used again, as far as the VM's memory goes.
    ":quarantine_size_mb=64",
);

/// Seconds in the VM; a quiet machine needs a tenth of it.
const LIMIT: u64 = 1800;

/// MiB. Every byte has shadows.
const MEMORY: u32 = 1024;

const SCRIPT: &str = include_str!("sanitize.sh");

/// Builds and runs it.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    if arguments.quick { quick(context, arguments.kernel) } else { full(context, arguments.kernel) }
}

/// The device's own check, and the suite on one driver. Everything that it takes is installed.
pub(crate) fn quick(context: &Context, kernel: Kernel) -> Result<()> {
    build_and_run(context, kernel, "quick")
}

/// The same with the suite on all drivers.
pub(crate) fn full(context: &Context, kernel: Kernel) -> Result<()> {
    build_and_run(context, kernel, "full")
}

fn build_and_run(context: &Context, kernel: Kernel, extent: &str) -> Result<()> {
    cargo(context, HOST_TESTS)?;
    cargo(context, BUILD)?;
    let timeout = Duration::from_secs(LIMIT);
    let options = Options { kernel, timeout, memory_mib: MEMORY, ..Options::default() };
    guest::run_with(&options, &command(context, kernel, extent))
}

/// The variable for unstable options has build scripts and macros built again, so they are in a folder of their own, which is
/// the one of the other step that has it.
fn target(context: &Context) -> PathBuf {
    compile_fail::target(context)
}

/// Runs cargo such that what it builds for the target is instrumented.
fn cargo(context: &Context, arguments: &[&str]) -> Result<()> {
    let (first, rest) = arguments.split_at(1);
    let arguments = [first, &["--target", TARGET], rest].concat();
    let target = target(context);
    let variables: [(&str, &OsStr); 4] = [
        ("RUSTC_BOOTSTRAP", "1".as_ref()),
        // Before any other flags that there may be.
        ("CARGO_ENCODED_RUSTFLAGS", FLAGS.as_ref()),
        ("CARGO_TARGET_DIR", target.as_os_str()),
        ("ASAN_OPTIONS", "detect_leaks=1".as_ref()),
    ];
    context.cargo(&arguments, &variables)
}

/// The command to run in the VM. Paths come in by variables: they may hold anything.
fn command(context: &Context, kernel: Kernel, extent: &str) -> Vec<OsString> {
    let variable = |name: &str, value: &OsStr| [OsStr::new(name), value].join(OsStr::new("="));
    let programs = target(context).join(TARGET).join("debug");
    vec![
        "env".into(),
        variable("programs", programs.as_os_str()),
        variable("expect", kernel_rereg::expected(kernel).as_ref()),
        variable("extent", extent.as_ref()),
        variable("ASAN_OPTIONS", OPTIONS.as_ref()),
        "sh".into(),
        "-c".into(),
        SCRIPT.into(),
    ]
}
