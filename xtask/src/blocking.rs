//! Checks that io-mio and io-epoll block only in the event loop: runs programs under strace in the VM.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cmid_softroce::Kernel;

use crate::context::{Context, this_program};

/// The command to run in the VM. The programs are passed as arguments, because their paths may hold any character.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    let this = this_program().unwrap_or_else(|_| "xtask".into());
    vec![
        "sh".into(),
        "-c".into(),
        OsString::from_vec(include_bytes!("blocking.sh").to_vec()),
        "sh".into(),
        this.into(),
        context.release("rping").into(),
        context.release("conformance").into(),
    ]
}
