//! The kernel's own re-registration, and the `fencing` example with it, in one VM.

use std::ffi::OsString;
use std::path::PathBuf;

use cmid_softroce::Kernel;

use crate::context::Context;

/// Variables hold the programs' paths, because they may contain any character.
const SCRIPT: &str = include_str!("kernel_rereg.sh");

/// The library for LD_PRELOAD that passes `ibv_rereg_mr` to the kernel.
pub(crate) fn shim(context: &Context) -> PathBuf {
    context.release("libcmid_rereg_shim.so")
}

/// The command to run in the VM.
pub(crate) fn command(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let variable = |name: &str, value: OsString| {
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(value);
        variable
    };
    vec![
        "env".into(),
        variable("shim", shim(context).into()),
        variable("rereg", context.release("kernel-rereg").into()),
        variable("fencing", context.release("fencing").into()),
        variable("expect", expected(kernel).into()),
        "sh".into(),
        "-c".into(),
        SCRIPT.into(),
    ]
}

/// What soft-RoCE's driver in this kernel can re-register. It supports it since 6.5; Ubuntu's kernels are newer.
pub(crate) fn expected(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 => "none",
        Kernel::V6_12 | Kernel::Ubuntu => "pd-access",
    }
}
