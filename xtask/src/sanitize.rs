//! `cargo xtask sanitize`: runs the code with unsafe blocks under AddressSanitizer and LeakSanitizer, in the VM.
//!
//! rustc contains both, so no other compiler is needed; only the options that enable them are unstable. The code
//! linked in is instrumented. librdmacm and libibverbs are not, but they use the sanitizer's allocator too. So it
//! detects when cmid's code uses memory that a library has freed, or goes past its end, and every double free or
//! leak. Freed memory is overwritten: a library that follows a pointer in it crashes, which is reported.
//!
//! It does not detect that a library reads past the end of an argument (Debian's have a memcpy of their own for
//! that), what the device does with registered memory, or leaked ids, because librdmacm has a table of all ids. The
//! conformance scenarios `nothing_is_left_*` count those. They cannot run here, because they count what glibc's
//! allocator has given out.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use cmid_softroce::{Kernel, Options};

use crate::backend::Backend;
use crate::context::Context;
use crate::{compile_fail, guest, host, scripts};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel of the VM: 6.1 or 6.12
    #[arg(long, default_value_t)]
    pub(crate) kernel: Kernel,
    /// What to run
    #[arg(long, value_enum, default_value_t)]
    extent: Extent,
    /// The backend of cmid-verbs
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
}

/// What runs. Each extent contains the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// The programs of tests/kernel
    Device,
    /// Also the conformance suite on one driver
    OneDriver,
    /// Also the suite on the other drivers
    #[default]
    AllDrivers,
}

impl Extent {
    /// Its name in the script.
    fn name(self) -> &'static str {
        match self {
            Extent::Device => "device",
            Extent::OneDriver => "one-driver",
            Extent::AllDrivers => "all-drivers",
        }
    }
}

/// The VM's target. Naming it keeps build scripts and macros, which run on the host, from being instrumented.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The cargo arguments that build the programs for the VM, and those that add the suite.
const BUILD: &[&str] = &["build", "--lib", "--bins", "-p", "cmid-kernel-tests", "-p", "cmid-rereg-shim"];
const SUITE: &[&str] = &["-p", "cmid-conformance", "--features", "cmid-conformance/verbs"];

/// The flags, with cargo's separator between them. The second one makes libraries loaded later, libibverbs' providers
/// and the shim, find all of the sanitizer's functions in the program.
const FLAGS: &str = "-Zsanitizer=address\x1f-Clink-arg=-rdynamic";

/// The tests of unsafe code without a device. Not `tests/orders.rs`: loom switches stacks.
const HOST_TESTS: &[&str] = &["test", "-p", "cmid-verbs", "--lib", "--", "--quiet"];

/// A report ends the program with this status, which is otherwise unused. The reports go to files, so that those of
/// child processes are not missed.
const OPTIONS: &str = concat!(
    "exitcode=86:log_path=/tmp/sanitizer:detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    // Overwrites freed memory with a pattern that is no valid pointer.
    ":max_free_fill_size=4096:free_fill_byte=219",
    // Keeps freed memory from being reused, as far as the VM's memory suffices.
    ":quarantine_size_mb=64",
);

/// Seconds in the VM; an idle machine needs a tenth of it.
const LIMIT: u64 = 1800;

/// MiB. Every byte has shadow memory.
const MEMORY: u32 = 1024;

/// Builds and runs the programs.
pub(crate) fn run(context: &mut Context, arguments: &Arguments) -> Result<()> {
    host::prepare(context)?;
    build_and_run(context, arguments.kernel, arguments.backend, arguments.extent)
}

/// Runs the programs of `tests/kernel`. All packages for it are installed.
pub(crate) fn device(context: &Context, kernel: Kernel, backend: Backend) -> Result<()> {
    build_and_run(context, kernel, backend, Extent::Device)
}

/// Runs also the conformance suite on one driver.
pub(crate) fn one_driver(context: &Context, kernel: Kernel, backend: Backend) -> Result<()> {
    build_and_run(context, kernel, backend, Extent::OneDriver)
}

/// Runs also the conformance suite on all drivers.
pub(crate) fn all_drivers(context: &Context, kernel: Kernel, backend: Backend) -> Result<()> {
    build_and_run(context, kernel, backend, Extent::AllDrivers)
}

fn build_and_run(context: &Context, kernel: Kernel, backend: Backend, extent: Extent) -> Result<()> {
    cargo(context, HOST_TESTS)?;
    let suite = if extent == Extent::Device { &[][..] } else { SUITE };
    cargo(context, &[BUILD, suite].concat())?;
    let timeout = Duration::from_secs(LIMIT);
    let options = Options { kernel, timeout, memory_mib: MEMORY, ..Options::default() };
    let programs = compile_fail::target(context).join(TARGET).join("debug").into();
    let texts = [("expect", scripts::can_reregister(kernel)), ("extent", extent.name()), ("ASAN_OPTIONS", OPTIONS)];
    let [expect, extent, asan] = texts.map(|(name, value)| (name, value.into()));
    guest::run_with(
        &options,
        &scripts::script(scripts::SANITIZE, backend, &[("programs", programs), expect, extent, asan]),
    )
}

/// Runs cargo so that the builds for the target are instrumented.
fn cargo(context: &Context, arguments: &[&str]) -> Result<()> {
    let (first, rest) = arguments.split_at(1);
    let arguments = [first, &["--target", TARGET], rest].concat();
    let target = compile_fail::target(context);
    let variables: [(&str, &OsStr); 4] = [
        ("RUSTC_BOOTSTRAP", "1".as_ref()),
        // Takes precedence over other variables with flags.
        ("CARGO_ENCODED_RUSTFLAGS", FLAGS.as_ref()),
        ("CARGO_TARGET_DIR", target.as_os_str()),
        ("ASAN_OPTIONS", "detect_leaks=1".as_ref()),
    ];
    context.cargo(&arguments, &variables)
}
