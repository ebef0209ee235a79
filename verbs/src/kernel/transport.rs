//! Reads the transport of a device from sysfs. The kernel's connection manager does not report it.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::{fs, io};

use cmid_proto::{Errno, Outcome, Transport};
use rustix::fs::{Mode, OFlags, RawDir};

use crate::kernel::location::Location;

/// The class directory of RDMA devices in sysfs.
const CLASS: &str = "/sys/class/infiniband";

/// The transports by GUID. The transport of a device does not change.
#[derive(Clone, Debug, Default)]
pub(super) struct Transports(Vec<(u64, Transport)>);

impl Transports {
    /// Reads the transports of the present devices. A core asks once for each id, and takes no answer for InfiniBand.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`. A machine without devices is no error.
    pub(super) fn read() -> Result<Self, Errno> {
        let mut all = Transports::default();
        all.read_from(Path::new(CLASS))?;
        Ok(all)
    }

    /// Returns the transport of the device at a location; `None` if sysfs has no such device. Reads sysfs again for a device
    /// that has come since.
    pub(super) fn at(&mut self, location: &Location) -> Option<Transport> {
        if self.known(location).is_none() {
            self.read_from(Path::new(CLASS)).ok()?;
        }
        self.known(location)
    }

    pub(super) fn known(&self, location: &Location) -> Option<Transport> {
        self.0.iter().find(|(guid, _)| *guid == location.guid).map(|(_, transport)| *transport)
    }

    /// The node type of a device decides, as in libibverbs (`decode_knode_type`).
    fn read_from(&mut self, class: &Path) -> Outcome {
        // The buffer is on the stack. `read_dir` takes 32 KiB of the heap and frees them; the heap then splits and merges this
        // free block for each QP that libibverbs allocates (about 230 instructions).
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(directory) = unless_exhausted(rustix::fs::open(class, flags, Mode::empty()).map_err(Into::into))?
        else {
            return Ok(());
        };
        let mut buffer = [const { MaybeUninit::uninit() }; 2048];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let device = class.join(OsStr::from_bytes(entry.file_name().to_bytes()));
            let read = |name| unless_exhausted(fs::read_to_string(device.join(name)));
            let (Some(guid), Some(node_type)) = (read("node_guid")?, read("node_type")?) else { continue };
            let Ok(guid) = u64::from_str_radix(&guid.trim().replace(':', ""), 16).map(u64::to_be) else { continue };
            if self.0.iter().all(|(known, _)| *known != guid) {
                let transport = if node_type.starts_with("4:") { Transport::Iwarp } else { Transport::InfiniBand };
                self.0.push((guid, transport));
            }
        }
        Ok(())
    }
}

/// `None` for a file that cannot be read.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
fn unless_exhausted<T>(read: io::Result<T>) -> Result<Option<T>, Errno> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.raw_os_error() {
            Some(errno @ (libc::EMFILE | libc::ENFILE)) => Err(Errno(errno)),
            Some(_) | None => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_type_decides() {
        let class = std::env::temp_dir().join(format!("cmid-transport-{}", std::process::id()));
        for (name, guid, node_type) in
            [("rxe0", "5054:00ff:fe00:9901", "1: CA\n"), ("siw0", "0000:00ff:fe00:9901", "4: RNIC\n")]
        {
            fs::create_dir_all(class.join(name)).unwrap();
            fs::write(class.join(name).join("node_guid"), format!("{guid}\n")).unwrap();
            fs::write(class.join(name).join("node_type"), node_type).unwrap();
        }
        let mut all = Transports::default();
        // A second read adds nothing.
        assert_eq!([all.read_from(&class), all.read_from(&class)], [Ok(()); 2]);
        fs::remove_dir_all(&class).unwrap();
        assert_eq!((all.0.len(), all.read_from(&class)), (2, Ok(())));
        let at = |guid: u64| all.known(&Location { guid: guid.to_be(), index: 0, port: 1 });
        let found = [0x5054_00ff_fe00_9901, 0x00ff_fe00_9901, 7].map(at);
        assert_eq!(found, [Some(Transport::InfiniBand), Some(Transport::Iwarp), None]);
    }
}
