//! Datagrams and multicast messages between two processes, with every driver, and to rdma-core's mckey.

use std::ffi::OsString;

use cmid_softroce::Kernel;

use crate::context::Context;

/// The functions, then every pair. The variable `ours` holds the program's path.
const SCRIPT: &str = concat!(include_str!("pairs.sh"), "\n", include_str!("datagrams.sh"));

/// The command to run in the VM.
pub(crate) fn command(context: &Context, _: Kernel) -> Vec<OsString> {
    let mut variable = OsString::from("ours=");
    variable.push(context.release("udping"));
    vec!["env".into(), variable, "sh".into(), "-c".into(), SCRIPT.into()]
}
