//! Commands of the VM that run the suites on the kernel backend of cmid-verbs.

use std::ffi::OsString;

use cmid_softroce::Kernel;

use crate::backend::Backend;
use crate::context::Context;
use crate::differential;

/// A program with the setting of the variable that the suites read.
fn on_kernel(context: &Context, program: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut command = vec!["env".into(), Backend::Kernel.setting().into(), context.release(program).into_os_string()];
    command.extend(arguments.iter().map(OsString::from));
    command
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
