//! Steps that run the code with unsafe blocks under AddressSanitizer and LeakSanitizer, in the VM.
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

use anyhow::Result;

use crate::backend::Backend;
use crate::context::Context;
use crate::step::{On, Vm};

/// The command of an extent. A report ends the program with status 86, which is otherwise unused. The reports go to files, so
/// that those of child processes are not missed. Freed memory is overwritten with a pattern that is no valid pointer, and kept
/// from being reused, as far as the VM's memory suffices.
macro_rules! command {
    ($extent:literal) => {
        &[concat!(
            "programs=@unstable/x86_64-unknown-linux-gnu/debug expect={rereg} extent=",
            $extent,
            " ASAN_OPTIONS=exitcode=86:log_path=/tmp/sanitizer:detect_leaks=1:detect_stack_use_after_return=1",
            ":strict_string_checks=1:max_free_fill_size=4096:free_fill_byte=219:quarantine_size_mb=64 sh sanitize",
        )]
    };
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

/// The programs of `tests/kernel`.
pub(crate) const fn device(on: On, backend: Backend) -> Vm {
    vm(on, backend, |context| build(context, &[]), command!("device"))
}

/// Also the conformance suite on one driver.
pub(crate) const fn one_driver(on: On, backend: Backend) -> Vm {
    vm(on, backend, |context| build(context, SUITE), command!("one-driver"))
}

/// Also the conformance suite on all drivers.
pub(crate) const fn all_drivers(on: On, backend: Backend) -> Vm {
    vm(on, backend, |context| build(context, SUITE), command!("all-drivers"))
}

/// The time limit leaves much room: an idle machine needs a tenth of it. Every byte has shadow memory.
const fn vm(on: On, backend: Backend, before: fn(&Context) -> Result<()>, commands: &'static [&'static str]) -> Vm {
    Vm { before: Some(before), memory: 1024, ..Vm::new(on, backend, 1800, commands) }
}

fn build(context: &Context, suite: &[&str]) -> Result<()> {
    cargo(context, HOST_TESTS)?;
    cargo(context, &[BUILD, suite].concat())
}

/// Runs cargo so that the builds for the target are instrumented.
fn cargo(context: &Context, arguments: &[&str]) -> Result<()> {
    let (first, rest) = arguments.split_at(1);
    let arguments = [first, &["--target", TARGET], rest].concat();
    let target = context.target().join("unstable");
    let variables: [(&str, &OsStr); 4] = [
        ("RUSTC_BOOTSTRAP", "1".as_ref()),
        // Takes precedence over other variables with flags.
        ("CARGO_ENCODED_RUSTFLAGS", FLAGS.as_ref()),
        ("CARGO_TARGET_DIR", target.as_os_str()),
        ("ASAN_OPTIONS", "detect_leaks=1".as_ref()),
    ];
    context.cargo(&arguments, &variables)
}
