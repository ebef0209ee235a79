//! What rdma-sys needs on the host.

use crate::{context::Context, libclang};
use anyhow::Result;
use cmid_softroce::packages;

/// The headers, what generates bindings from them, and the programs the tests compare ours with.
const PACKAGES: &[&str] = &[
    "libibverbs-dev",
    "librdmacm-dev",
    "ibverbs-providers",
    "rdmacm-utils",
    "ibverbs-utils",
    "pkg-config",
    "clang",
    "libclang-dev",
    "gcc",
    "libc6-dev",
    "strace",
];

/// Installs what is lacking, and finds a libclang that works.
pub(crate) fn prepare(context: &mut Context) -> Result<()> {
    packages::ensure(PACKAGES)?;
    for (name, value) in libclang::environment()? {
        println!("{}={}", name.display(), value.display());
        context.environment.push((name, value));
    }
    Ok(())
}
