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

/// The transports by GUID, until a device goes: another one with its GUID can come.
#[derive(Clone, Debug, Default)]
pub(super) struct Transports {
    known: Vec<Known>,
    /// Whether a device has gone since the last read.
    is_stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    guid: u64,
    /// The kernel's number of the first device that was asked for. Another number is of a device that has come since.
    index: Option<u32>,
    transport: Seen,
}

/// What sysfs tells of a GUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    One(Transport),
    /// Devices of both transports have it. soft-RoCE and soft-iWARP on one network device make it from the same address.
    Both,
}

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

    /// Returns what sysfs tells of the device at a location; `None` if it has no such device. Reads sysfs again for a device
    /// that has come since, and after a removal.
    pub(super) fn at(&mut self, location: &Location) -> Option<Seen> {
        self.at_in(location, Path::new(CLASS))
    }

    fn at_in(&mut self, location: &Location, class: &Path) -> Option<Seen> {
        let known = if self.is_stale { None } else { self.claim(location) };
        known.or_else(|| {
            let mut read = Transports::default();
            // What is known is more than nothing, which the core takes for InfiniBand.
            if read.read_from(class).is_ok() {
                *self = read;
            }
            self.claim(location)
        })
    }

    fn claim(&mut self, location: &Location) -> Option<Seen> {
        let known = self.known.iter_mut().find(|known| known.guid == location.guid)?;
        let is_it = known.transport == Seen::Both || *known.index.get_or_insert(location.index) == location.index;
        is_it.then_some(known.transport)
    }

    /// Whether the device at a location is known to be on iWARP. Does not read sysfs.
    pub(super) fn is_iwarp(&self, location: &Location) -> bool {
        self.known.iter().any(|known| known.guid == location.guid && known.transport == Seen::One(Transport::Iwarp))
    }

    /// Called when an id has reported that its device is gone.
    pub(super) fn removed(&mut self) {
        self.is_stale = true;
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
            let is_iwarp = node_type.starts_with("4:");
            let transport = Seen::One(if is_iwarp { Transport::Iwarp } else { Transport::InfiniBand });
            match self.known.iter_mut().find(|known| known.guid == guid) {
                Some(known) if known.transport != transport => known.transport = Seen::Both,
                Some(_) => {}
                None => self.known.push(Known { guid, index: None, transport }),
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

#[cfg(all(test, feature = "scripted-kernel"))]
impl Transports {
    /// The transport of one device.
    pub(super) fn of(guid: u64, transport: Seen) -> Self {
        Transports { known: vec![Known { guid, index: None, transport }], is_stale: false }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const CA: &str = "1: CA\n";
    const RNIC: &str = "4: RNIC\n";

    /// A class directory for one test, removed at its end.
    struct Class(PathBuf);

    impl Class {
        fn new(test: &str, devices: &[(&str, &str, &str)]) -> Self {
            let class = Class(std::env::temp_dir().join(format!("cmid-transport-{test}-{}", std::process::id())));
            devices.iter().for_each(|device| class.add(*device));
            class
        }

        fn add(&self, (name, guid, node_type): (&str, &str, &str)) {
            fs::create_dir_all(self.0.join(name)).unwrap();
            fs::write(self.0.join(name).join("node_guid"), format!("{guid}\n")).unwrap();
            fs::write(self.0.join(name).join("node_type"), node_type).unwrap();
        }

        fn remove(&self, name: &str) {
            fs::remove_dir_all(self.0.join(name)).unwrap();
        }
    }

    impl Drop for Class {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn location(guid: u64, index: u32) -> Location {
        Location { guid: guid.to_be(), index, port: 1 }
    }

    #[test]
    fn the_node_type_decides() {
        let devices = [("rxe0", "5054:00ff:fe00:9901", CA), ("siw0", "0000:00ff:fe00:9901", RNIC)];
        let class = Class::new("decides", &devices);
        let mut all = Transports::default();
        // A second read adds nothing.
        assert_eq!([all.read_from(&class.0), all.read_from(&class.0)], [Ok(()); 2]);
        devices.iter().for_each(|(name, ..)| class.remove(name));
        assert_eq!((all.known.len(), all.read_from(&class.0)), (2, Ok(())));
        let mut at = |guid: u64| all.at_in(&location(guid, 0), &class.0);
        let found = [at(0x5054_00ff_fe00_9901), at(0x00ff_fe00_9901)];
        assert_eq!(found, [Some(Seen::One(Transport::InfiniBand)), Some(Seen::One(Transport::Iwarp))]);
        assert_eq!(at(7), None);
    }

    #[test]
    fn one_guid_of_two_transports_does_not_decide() {
        let class = Class::new("both", &[("rxe0", "0000:0000:0000:0007", CA), ("siw0", "0000:0000:0000:0007", RNIC)]);
        let mut all = Transports::default();
        assert_eq!([0, 1, 0].map(|index| all.at_in(&location(7, index), &class.0)), [Some(Seen::Both); 3]);
        assert!(!all.is_iwarp(&location(7, 1)));
    }

    #[test]
    fn a_device_that_replaces_another_one_is_read_anew() {
        let class = Class::new("replaced", &[("rxe0", "0000:0000:0000:0007", CA)]);
        let mut all = Transports::default();
        let is = |transport| Some(Seen::One(transport));
        assert_eq!(all.at_in(&location(7, 3), &class.0), is(Transport::InfiniBand));
        class.remove("rxe0");
        class.add(("siw0", "0000:0000:0000:0007", RNIC));
        // The kernel has given it another number.
        assert_eq!(all.clone().at_in(&location(7, 4), &class.0), is(Transport::Iwarp));
        // It has the same number.
        assert_eq!(all.at_in(&location(7, 3), &class.0), is(Transport::InfiniBand));
        all.removed();
        assert_eq!(all.at_in(&location(7, 3), &class.0), is(Transport::Iwarp));
        class.remove("siw0");
        assert_eq!(all.at_in(&location(7, 3), &class.0), is(Transport::Iwarp));
    }
}
