//! Checks that the drivers block only in the event loop: runs programs under strace in the VM.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::{Context, this_program};

/// io-mio and io-epoll with librdmacm: the command to run in the VM.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    script(context, Backend::Librdmacm)
}

/// All drivers on the kernel backend: without ibacm, with one that answers, and with one that hangs.
pub(crate) fn kernel_backend(context: &Context, _: Kernel) -> Vec<OsString> {
    script(context, Backend::Kernel)
}

/// The programs are passed as arguments, because their paths may hold any character.
fn script(context: &Context, backend: Backend) -> Vec<OsString> {
    let this = this_program().unwrap_or_else(|_| "xtask".into());
    vec![
        "sh".into(),
        "-c".into(),
        OsString::from_vec(include_bytes!("blocking.sh").to_vec()),
        "sh".into(),
        this.into(),
        context.release("rping").into(),
        context.release("conformance").into(),
        backend.name().into(),
        context.release("kernel-device").into(),
    ]
}
