//! Finds and opens the kernel's device node. Errors name the missing part.

use core::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cmid_proto::Errno;

use crate::kernel::abi;

/// The class directory of `rdma_ucm`'s device in sysfs.
const CLASS: &str = "/sys/class/misc/rdma_cm";

/// The reason why the kernel's connection manager cannot be used. Its Debug form is the text too, because `main` prints
/// that of its error.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// sysfs has no `rdma_cm`: the module `rdma_ucm` is not loaded, or sysfs is not mounted.
    NoModule,
    /// The kernel has another ABI version than 4.
    ForeignAbi(String),
    /// The module is loaded, but its device node does not exist, for example in a container without it.
    NoNode(PathBuf),
    /// The file at the node's path is not the device that sysfs names, for example because `/dev` was copied from
    /// another machine.
    WrongNode(PathBuf),
    /// This user may not open the node.
    NoPermission(PathBuf),
    /// A library of rdma-core cannot be loaded: this text names it and tells the dynamic linker's reason.
    NoLibrary(String),
    /// librdmacm finds no RDMA device.
    NoDevice,
    /// librdmacm would wait for ibacm(8), whose file this is, without a time limit. The kernel backend does not ask ibacm.
    WaitsForIbacm(PathBuf),
    /// The node is open, but write(2) on it fails with this errno. A sandbox refuses it, or the kernel, because the
    /// writer has other credentials than the opener (`ib_safe_file_access`).
    WriteRefused(Errno),
    /// open(2) of the node or of a file of sysfs failed with another errno, such as `EMFILE`.
    Failed(Errno),
}

impl OpenError {
    /// The closest errno.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            OpenError::NoModule | OpenError::NoDevice => Errno::ENODEV,
            OpenError::ForeignAbi(_) => Errno(libc::EPROTO),
            OpenError::WaitsForIbacm(_) => Errno(libc::EOPNOTSUPP),
            OpenError::NoNode(_) => Errno::ENOENT,
            OpenError::WrongNode(_) => Errno(libc::ENXIO),
            OpenError::NoPermission(_) => Errno(libc::EACCES),
            OpenError::NoLibrary(_) => Errno(libc::ELIBACC),
            OpenError::WriteRefused(errno) | OpenError::Failed(errno) => *errno,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NoModule => {
                write!(f, "{CLASS} does not exist: the kernel module rdma_ucm is not loaded, or sysfs is not mounted")
            }
            OpenError::ForeignAbi(found) => {
                write!(f, "{CLASS}/abi_version is {found:?}, and only {} is supported", abi::ABI_VERSION)
            }
            OpenError::NoNode(node) => write!(f, "{} does not exist although rdma_ucm is loaded", node.display()),
            OpenError::WrongNode(node) => write!(f, "{} is not the device that {CLASS} names", node.display()),
            OpenError::NoPermission(node) => write!(f, "no permission to open {} (EACCES)", node.display()),
            OpenError::NoLibrary(reason) => write!(f, "{reason} (is rdma-core installed?)"),
            OpenError::NoDevice => {
                f.write_str("there is no RDMA device, or libibverbs has no provider for it (rdma link, ibv_devices)")
            }
            OpenError::WaitsForIbacm(file) => {
                write!(
                    f,
                    "librdmacm would wait for ibacm, which runs ({}): use the kernel backend, which does not ask ibacm, \
                     or stop ibacm",
                    file.display()
                )
            }
            OpenError::WriteRefused(errno) => {
                write!(
                    f,
                    "write(2) on the device node is refused ({errno}): by a sandbox, or after changed credentials"
                )
            }
            OpenError::Failed(errno) => write!(f, "the connection manager does not open: {errno}"),
        }
    }
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for OpenError {}

impl From<OpenError> for io::Error {
    /// Has the kind of the [errno](OpenError::errno).
    fn from(error: OpenError) -> Self {
        io::Error::new(io::Error::from(error.errno()).kind(), error)
    }
}

/// The entry of sysfs for the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    path: PathBuf,
    /// Its number (`st_rdev` of stat(2)).
    number: u64,
}

impl Node {
    /// The reason why librdmacm has failed with this errno: the part of the kernel's interface that is missing or forbidden,
    /// otherwise the errno.
    pub(crate) fn why(errno: Errno) -> OpenError {
        match (Node::find().and_then(|node| node.open()), errno) {
            (Err(error), _) => error,
            (Ok(_), Errno::ENODEV) => OpenError::NoDevice,
            (Ok(_), _) => OpenError::Failed(errno),
        }
    }

    /// Finds the node by sysfs.
    ///
    /// # Errors
    /// [`OpenError::NoModule`], [`OpenError::ForeignAbi`], and [`OpenError::Failed`] for a file of sysfs.
    pub(crate) fn find() -> Result<Self, OpenError> {
        #[cfg(feature = "scripted-kernel")]
        if crate::kernel::script::is_running() {
            return Ok(Node { path: "/dev/null".into(), number: libc::makedev(1, 3) });
        }
        find(Path::new(CLASS), Path::new("/dev"))
    }

    /// Opens a new event channel.
    ///
    /// # Errors
    /// The errors of opening the node.
    pub(crate) fn open(&self) -> Result<File, OpenError> {
        let Node { path, number } = self;
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| why(path, &error))?;
        let found = file.metadata().map_err(|error| why(path, &error))?;
        if found.file_type().is_char_device() && found.rdev() == *number {
            Ok(file)
        } else {
            Err(OpenError::WrongNode(path.clone()))
        }
    }
}

/// Reads the device node from a class directory of sysfs.
fn find(class: &Path, dev: &Path) -> Result<Node, OpenError> {
    let read = |name: &str| {
        fs::read_to_string(class.join(name)).map_err(|error| match errno(&error) {
            Errno(libc::ENOENT | libc::ENOTDIR) => OpenError::NoModule,
            errno => OpenError::Failed(errno),
        })
    };
    let version = read("abi_version")?;
    if version.trim().parse() != Ok(abi::ABI_VERSION) {
        return Err(OpenError::ForeignAbi(version.trim().into()));
    }
    let uevent = read("uevent")?;
    let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| value(key)?.parse::<u32>().ok();
    let path = dev.join(value("DEVNAME").unwrap_or("infiniband/rdma_cm"));
    match (number("MAJOR"), number("MINOR")) {
        (Some(major), Some(minor)) => Ok(Node { path, number: libc::makedev(major, minor) }),
        _ => Err(OpenError::NoNode(path)),
    }
}

/// The error for a failed open(2) of the node.
fn why(node: &Path, error: &io::Error) -> OpenError {
    match errno(error) {
        Errno(libc::ENOENT | libc::ENOTDIR) => OpenError::NoNode(node.into()),
        // The node exists, but its driver does not.
        Errno(libc::ENODEV | libc::ENXIO) => OpenError::WrongNode(node.into()),
        Errno(libc::EACCES | libc::EPERM) => OpenError::NoPermission(node.into()),
        errno => OpenError::Failed(errno),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class directory of sysfs and a `/dev` for tests. The device number is that of `/dev/null`.
    struct Fake(PathBuf);

    #[test]
    fn an_error_becomes_an_io_error() {
        let denied = OpenError::NoPermission("/dev/infiniband/rdma_cm".into());
        let error = io::Error::from(denied.clone());
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::PermissionDenied, denied.to_string()));
    }

    impl Fake {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("cmid-{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("class")).unwrap();
            fs::create_dir_all(root.join("dev/infiniband")).unwrap();
            let fake = Fake(root);
            fake.write("abi_version", "4\n");
            fake.write("uevent", "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666\n");
            fake
        }

        fn write(&self, name: &str, contents: &str) {
            fs::write(self.0.join("class").join(name), contents).unwrap();
        }

        fn node(&self) -> PathBuf {
            self.0.join("dev/infiniband/rdma_cm")
        }

        fn open(&self) -> Result<(), OpenError> {
            find(&self.0.join("class"), &self.0.join("dev")).and_then(|node| node.open()).map(drop)
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_node_is_the_one_that_sysfs_names() {
        let fake = Fake::new("node");
        std::os::unix::fs::symlink("/dev/null", fake.node()).unwrap();
        assert_eq!(fake.open(), Ok(()));
        fake.write("uevent", "MAJOR=1\nMINOR=3\nDEVNAME=other/cm\n");
        assert_eq!(fake.open(), Err(OpenError::NoNode(fake.0.join("dev/other/cm"))));
        fake.write("uevent", "MAJOR=1\nMINOR=3\n");
        assert_eq!(fake.open(), Ok(()));
    }

    #[test]
    fn no_module() {
        let fake = Fake::new("no-module");
        let missing = fake.0.join("missing");
        assert_eq!(find(&missing, &fake.0), Err(OpenError::NoModule));
        assert_eq!(find(&missing, &fake.0).unwrap_err().errno(), Errno::ENODEV);
    }

    #[test]
    fn foreign_abi_versions() {
        let fake = Fake::new("abi");
        for version in ["3", "5", "-4", "", "four"] {
            fake.write("abi_version", &format!("{version}\n"));
            assert_eq!(fake.open(), Err(OpenError::ForeignAbi(version.into())));
        }
    }

    #[test]
    fn no_node() {
        let fake = Fake::new("no-node");
        assert_eq!(fake.open(), Err(OpenError::NoNode(fake.node())));
        fake.write("uevent", "DEVNAME=infiniband/rdma_cm\n");
        assert_eq!(fake.open(), Err(OpenError::NoNode(fake.node())));
    }

    #[test]
    fn a_node_of_another_device_or_a_file_is_wrong() {
        let fake = Fake::new("wrong-node");
        fs::write(fake.node(), []).unwrap();
        assert_eq!(fake.open(), Err(OpenError::WrongNode(fake.node())));
        fs::remove_file(fake.node()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", fake.node()).unwrap();
        assert_eq!(fake.open(), Err(OpenError::WrongNode(fake.node())));
    }

    #[test]
    fn other_failures_keep_their_errno() {
        let fake = Fake::new("other");
        fs::create_dir(fake.node()).unwrap();
        assert_eq!(fake.open(), Err(OpenError::Failed(Errno(libc::EISDIR))));
        let why = |errno| why(&fake.node(), &io::Error::from_raw_os_error(errno));
        assert_eq!(why(libc::EACCES), OpenError::NoPermission(fake.node()));
        assert_eq!(why(libc::EPERM), OpenError::NoPermission(fake.node()));
        assert_eq!(why(libc::EMFILE), OpenError::Failed(Errno(libc::EMFILE)));
        fs::remove_file(fake.0.join("class/uevent")).unwrap();
        fs::create_dir(fake.0.join("class/uevent")).unwrap();
        assert_eq!(fake.open(), Err(OpenError::Failed(Errno(libc::EISDIR))));
    }

    #[test]
    fn every_error_names_its_place() {
        let node = PathBuf::from("/dev/infiniband/rdma_cm");
        for (error, part) in [
            (OpenError::NoModule, "rdma_ucm"),
            (OpenError::ForeignAbi("5".into()), "\"5\""),
            (OpenError::NoNode(node.clone()), "/dev/infiniband/rdma_cm"),
            (OpenError::WrongNode(node.clone()), "/dev/infiniband/rdma_cm"),
            (OpenError::NoPermission(node), "/dev/infiniband/rdma_cm"),
            (OpenError::NoLibrary("libibverbs.so.1 cannot be loaded".into()), "libibverbs.so.1"),
            (OpenError::NoDevice, "no RDMA device"),
            (OpenError::WaitsForIbacm("/run/ibacm.sock".into()), "/run/ibacm.sock): use the kernel backend"),
            (OpenError::WriteRefused(Errno(libc::EACCES)), "EACCES"),
            (OpenError::Failed(Errno(libc::EMFILE)), "EMFILE"),
        ] {
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }
}
