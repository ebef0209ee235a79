//! The kernel's own re-registration, through cmid's types: `ibv_rereg_mr` of soft-RoCE with the preloaded shim of
//! `tests/kernel/shim`. Two devices in one process connect over 10.99.0.1 and 10.99.0.2 (`rxe0` in the soft-RoCE
//! machine). What a driver sees of it is a scenario of `tests/conformance`, with the same shim; here is what takes memory of
//! another kind, errnos of the kernel itself, or the count of requests to it.
//!
//! ```sh
//! cargo xtask softroce -- env LD_PRELOAD=target/release/libcmid_rereg_shim.so target/release/kernel-rereg --expect pd-access
//! cargo xtask softroce --kernel 6.1 -- env LD_PRELOAD=target/release/libcmid_rereg_shim.so target/release/kernel-rereg --expect none
//! ```
//!
//! The kernel's abilities are given, not detected, so that no check is skipped silently: `pd-access` is 6.12, which
//! changes PDs and rights, `none` is 6.1. Without the shim it fails. It exits with status 101 and a message at the
//! first unexpected result.
#![expect(unsafe_code, reason = "it calls C")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod cannot;
mod domains;
mod faults;
mod fixture;
// The connections are made as in the device's own check, which uses more of this module.
#[allow(dead_code, reason = "shared with another program")]
#[path = "../device/env.rs"]
mod env;
mod rights;
mod shim;

use std::process::ExitCode;
use std::time::Instant;

/// A name and a function.
type Check = (&'static str, fn());

/// The checks on a kernel with a driver that changes PDs and rights.
const PD_ACCESS: [Check; 4] = [
    ("an MR moves to another PD: users, keys, who can be deallocated", domains::moved),
    ("the right to be written is taken", rights::writing),
    ("pages that were pinned to be read: what is known of the provider decides", faults::pinned_to_be_read),
    ("an unusable MR whose device goes", faults::unusable_without_its_device),
];

/// The checks on a kernel with a driver that cannot re-register.
const NONE: [Check; 1] = [("every combination of flags is not supported and changes nothing", cannot::all_flags)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let checks: &[Check] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--expect", "pd-access"] => &PD_ACCESS,
        ["--expect", "none"] => &NONE,
        _ => {
            eprintln!("usage: rereg --expect pd-access|none");
            return ExitCode::from(2);
        }
    };
    for (name, check) in checks {
        let (from, before) = (Instant::now(), shim::count());
        println!("-- {name}");
        check();
        let calls = shim::count() - before;
        println!("ok {:>6} ms  {name} ({calls} re-registrations by the kernel)", from.elapsed().as_millis());
    }
    println!("{} checks passed", checks.len());
    ExitCode::SUCCESS
}
