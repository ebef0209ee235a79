//! The transports of the guest's devices, and the module that Debian leaves out.

use crate::error::{Error, WithPath};
use crate::kernel::{Kernel, Unpacked};
use crate::tool::{self, LONG};
use crate::{cache, packages, progress};
use std::{fmt, fs, path::Path, path::PathBuf, str::FromStr};

/// Builds the module.
const BUILD: &str = include_str!("../siw.sh");

/// The transport of the guest's RDMA devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// Soft-RoCE: InfiniBand's transport over UDP. Each device is called rxe.
    #[default]
    Rxe,
    /// Soft-iWARP: RDMA over TCP. Each device is called siw. The module is built from Debian's source of the kernel.
    Siw,
}

impl Transport {
    /// All transports.
    pub const ALL: &[Transport] = &[Transport::Rxe, Transport::Siw];

    /// The type of the devices, as rdma(8) has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transport::Rxe => "rxe",
            Transport::Siw => "siw",
        }
    }

    /// The kernel's own modules that it needs. The first ones are found by name at run time, so that modprobe does
    /// not list them as dependencies.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Transport::Rxe => &["crc32_generic", "ib_uverbs", "rdma_rxe"],
            Transport::Siw => &["crc32c_generic", "libcrc32c", "ib_uverbs"],
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Transport::ALL.iter().copied().find(|transport| transport.name() == name).ok_or_else(|| {
            let known: Vec<_> = Transport::ALL.iter().map(|transport| transport.name()).collect();
            Error::Usage(format!("unknown transport {name}; there are {}", known.join(" and ")))
        })
    }
}

/// Finds siw.ko for this kernel in the cache, or builds it.
pub(crate) fn ensure_siw(cache: &Path, kernel: Kernel, unpacked: &Unpacked) -> Result<PathBuf, Error> {
    let _lock = cache::lock(cache, &format!("kernel-{kernel}"))?;
    let module = unpacked.directory.join("siw.ko");
    if !module.exists() {
        if kernel == Kernel::Ubuntu {
            return Err(Error::Usage("siw is built for Debian's kernels only".to_owned()));
        }
        let headers = format!("linux-headers-{}", unpacked.release);
        packages::ensure(&[&headers, "make", "gcc", "binutils"])?;
        progress::begin(&format!("building siw for Linux {}", unpacked.release));
        let directory = tempfile::Builder::new().prefix("siw-").tempdir_in(cache).about_file(cache)?;
        packages::with_fresh_lists("building siw", || {
            let mut build = tool::command("sh");
            build.args(["-euc", BUILD, "sh", &unpacked.release, kernel.series()]).current_dir(directory.path());
            tool::succeed(&mut build, LONG)
        })?;
        fs::rename(directory.path().join("siw.ko"), &module).about_file(&module)?;
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_known_by_the_type_of_their_devices() {
        for transport in Transport::ALL {
            assert_eq!(transport.to_string().parse::<Transport>().unwrap(), *transport);
        }
        assert!("opa".parse::<Transport>().is_err());
    }
}
