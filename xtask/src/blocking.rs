//! Checks that the drivers block only in the event loop: runs programs under strace in the VM.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Context as _, Result};
use cmid_softroce::{Kernel, packages};

use crate::backend::Backend;
use crate::context::{Context, this_program};
use crate::guest;

/// Seconds for all drivers on the kernel backend: without ibacm, while it runs, and while it hangs.
const LIMIT: u64 = 2400;

/// io-mio and io-epoll with librdmacm: the command to run in the VM.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    script(context, Backend::Librdmacm, OsString::new())
}

/// All drivers on the kernel backend, in the VM, with rdma-core's ibacm. It is unpacked and not installed, because
/// librdmacm of the host would use it.
pub(crate) fn kernel_backend(context: &Context, kernel: Kernel) -> Result<()> {
    let directory = context.target().join("ibacm");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    packages::unpack(&["ibacm", "libibumad3"], &directory)?;
    guest::run(kernel, LIMIT, &script(context, Backend::Kernel, directory.into()), Vec::new())
}

/// The programs are passed as arguments, because their paths may hold any character.
fn script(context: &Context, backend: Backend, ibacm: OsString) -> Vec<OsString> {
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
        ibacm,
    ]
}
