//! Nothing on any path of io-mio and io-epoll waits but the loop itself: programs run under strace in the VM.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cmid_softroce::Kernel;

use crate::context::{Context, this_program};

/// The command to run in the VM. The programs are handed over as arguments: their paths may hold anything.
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
