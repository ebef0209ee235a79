//! The packages that rdma-sys needs on the host.

use crate::{context::Context, libclang};
use anyhow::Result;
use cmid_softroce::packages;

/// The headers, the generator of bindings, and the programs that tests compare cmid with.
pub(crate) const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "librdmacm-dev",
    "ibverbs-providers",
    "rdmacm-utils",
    "ibverbs-utils",
    "perftest",
    "pkg-config",
    "clang",
    "libclang-dev",
    "gcc",
    "libc6-dev",
    "strace",
    "fio",
    "nvme-cli",
];

/// Installs missing packages, and finds a usable libclang.
pub(crate) fn prepare(context: &mut Context) -> Result<()> {
    packages::ensure(PACKAGES)?;
    for (name, value) in libclang::environment()? {
        println!("{}={}", name.to_string_lossy(), value.to_string_lossy());
        context.environment.push((name, value));
    }
    Ok(())
}
