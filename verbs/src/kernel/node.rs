//! Finds and opens the kernel's device node, and names what is missing.

use core::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cmid_proto::Errno;

use crate::kernel::abi;

/// Where the kernel lists the device of `rdma_ucm`.
const CLASS: &str = "/sys/class/misc/rdma_cm";

/// Why the kernel's connection manager cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// sysfs has no `rdma_cm`: the module `rdma_ucm` is not loaded.
    NoModule,
    /// The kernel has another ABI version than 4.
    ForeignAbi(String),
    /// The module is loaded, and its device node does not exist, as in a container without it.
    NoNode(PathBuf),
    /// The node may not be opened by this user.
    NoPermission(PathBuf),
    /// The node is open, and write(2) on it is refused with this errno: by a sandbox, or by the kernel's check that the writer
    /// has the credentials of the opener (`ib_safe_file_access`).
    WriteRefused(Errno),
    /// open(2) failed with another errno, such as `EMFILE`.
    Failed(Errno),
}

impl OpenError {
    /// The errno that stands for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NoModule => Errno::ENODEV,
            OpenError::ForeignAbi(_) => Errno(libc::EPROTO),
            OpenError::NoNode(_) => Errno::ENOENT,
            OpenError::NoPermission(_) => Errno(libc::EACCES),
            OpenError::WriteRefused(errno) | OpenError::Failed(errno) => *errno,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NoModule => write!(f, "{CLASS} does not exist: load the kernel module rdma_ucm"),
            OpenError::ForeignAbi(found) => {
                write!(f, "{CLASS}/abi_version is {found:?}, and only {} is supported", abi::ABI_VERSION)
            }
            OpenError::NoNode(node) => write!(f, "{} does not exist although rdma_ucm is loaded", node.display()),
            OpenError::NoPermission(node) => write!(f, "no permission to open {}", node.display()),
            OpenError::WriteRefused(errno) => {
                write!(f, "write(2) on the device node is refused ({errno}): a sandbox, or changed credentials")
            }
            OpenError::Failed(errno) => write!(f, "the device node does not open: {errno}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The device node, from what sysfs says.
///
/// # Errors
/// [`OpenError::NoModule`] and [`OpenError::ForeignAbi`].
pub(crate) fn find() -> Result<PathBuf, OpenError> {
    find_in(Path::new(CLASS))
}

fn find_in(class: &Path) -> Result<PathBuf, OpenError> {
    let version = fs::read_to_string(class.join("abi_version")).map_err(|_| OpenError::NoModule)?;
    if version.trim().parse() != Ok(abi::ABI_VERSION) {
        return Err(OpenError::ForeignAbi(version.trim().into()));
    }
    let uevent = fs::read_to_string(class.join("uevent")).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    Ok(Path::new("/dev").join(name.unwrap_or("infiniband/rdma_cm")))
}

/// What a failed open(2) of the node means.
pub(crate) fn why(node: &Path, error: &io::Error) -> OpenError {
    match error.raw_os_error().unwrap_or(libc::EIO) {
        libc::ENOENT => OpenError::NoNode(node.into()),
        libc::EACCES | libc::EPERM => OpenError::NoPermission(node.into()),
        errno => OpenError::Failed(Errno(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let class = std::env::temp_dir().join(format!("cmid-rdma-cm-{}", std::process::id()));
        assert_eq!(find_in(&class), Err(OpenError::NoModule));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("abi_version"), "5\n").unwrap();
        assert_eq!(find_in(&class), Err(OpenError::ForeignAbi("5".into())));
        fs::write(class.join("abi_version"), "4\n").unwrap();
        assert_eq!(find_in(&class), Ok("/dev/infiniband/rdma_cm".into()));
        fs::write(class.join("uevent"), "MAJOR=10\nDEVNAME=other/cm\n").unwrap();
        assert_eq!(find_in(&class), Ok("/dev/other/cm".into()));
        fs::remove_dir_all(&class).unwrap();

        let node = Path::new("/dev/x");
        assert_eq!(why(node, &io::Error::from_raw_os_error(libc::ENOENT)), OpenError::NoNode(node.into()));
        assert_eq!(why(node, &io::Error::from_raw_os_error(libc::EACCES)), OpenError::NoPermission(node.into()));
        assert_eq!(why(node, &io::Error::from_raw_os_error(libc::EMFILE)), OpenError::Failed(Errno(libc::EMFILE)));
    }
}
