//! Commands of the VM that run the suites on the kernel backend of cmid-verbs, or with the classic calls that post.

use std::ffi::OsString;

use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::differential;

/// A program with the setting of a variable that the suites read.
fn with(setting: &str, context: &Context, program: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut command = vec!["env".into(), setting.into(), context.release(program).into_os_string()];
    command.extend(arguments.iter().map(OsString::from));
    command
}

fn on_kernel(context: &Context, program: &str, arguments: &[&str]) -> Vec<OsString> {
    with(&Backend::Kernel.setting(), context, program, arguments)
}

/// The setting of the calls that post.
pub(crate) const CLASSIC: &str = "CMID_POST_CALLS=classic";

pub(crate) fn device_with_classic_posts(context: &Context, _: Kernel) -> Vec<OsString> {
    with(CLASSIC, context, "kernel-device", &[])
}

pub(crate) fn device(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "kernel-device", &[])
}

pub(crate) fn removal(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "kernel-device", &["removal"])
}

pub(crate) fn opened(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "kernel-device", &["opened"])
}

pub(crate) fn ibacm(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "kernel-device", &["ibacm"])
}

pub(crate) fn cycles(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "soak", &["cycles", "--driver", "epoll", "--device", "verbs"])
}

pub(crate) fn listener(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "soak", &["listener", "--driver", "mio", "--device", "verbs"])
}

pub(crate) fn faults(context: &Context, _: Kernel) -> Vec<OsString> {
    on_kernel(context, "faults", &["run", "--speed", "fast"])
}

pub(crate) fn differential(context: &Context, kernel: Kernel) -> Vec<OsString> {
    let mut command = differential::at_length(context, kernel);
    command.extend(["--backend", "kernel"].map(OsString::from));
    command
}
