//! Reads the transport of a device from sysfs. The kernel's connection manager does not report it.

use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cmid_proto::Transport;
use rustix::fs::{Mode, OFlags, RawDir};

use crate::kernel::location::Location;

/// The class directory of RDMA devices in sysfs.
const CLASS: &str = "/sys/class/infiniband";

/// The transports by GUID. The transport of a device does not change.
#[derive(Debug, Default)]
pub(super) struct Transports(Vec<(u64, Transport)>);

impl Transports {
    /// Returns the transport of the device at a location; `None` if sysfs has no such device.
    #[inline]
    pub(super) fn at(&mut self, location: &Location) -> Option<Transport> {
        match self.0.iter().find(|(guid, _)| *guid == location.guid) {
            Some(&(_, transport)) => Some(transport),
            None => self.learn(location),
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&mut self, location: &Location) -> Option<Transport> {
        let transport = find(Path::new(CLASS), location.guid)?;
        self.0.push((location.guid, transport));
        Some(transport)
    }
}

/// Finds the device with this GUID, in network order. Its node type decides, as in libibverbs (`decode_knode_type`).
fn find(class: &Path, guid: u64) -> Option<Transport> {
    let of = |device: &Path| {
        let read = |name| fs::read_to_string(device.join(name)).ok();
        let digits = read("node_guid")?.trim().replace(':', "");
        let is_it = u64::from_str_radix(&digits, 16).ok()?.to_be() == guid;
        let node_type = read("node_type").filter(|_| is_it)?;
        Some(if node_type.starts_with("4:") { Transport::Iwarp } else { Transport::InfiniBand })
    };
    // The buffer is on the stack. `read_dir` takes 32 KiB of the heap and frees them; the heap then splits and merges this
    // free block for each QP that libibverbs allocates (about 230 instructions).
    let directory =
        rustix::fs::open(class, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [const { MaybeUninit::uninit() }; 2048];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        if let Some(transport) = of(&class.join(OsStr::from_bytes(entry.file_name().to_bytes()))) {
            return Some(transport);
        }
    }
    None
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
        let found = [0x5054_00ff_fe00_9901_u64, 0x00ff_fe00_9901, 7].map(|guid| find(&class, guid.to_be()));
        fs::remove_dir_all(&class).unwrap();
        assert_eq!(found, [Some(Transport::InfiniBand), Some(Transport::Iwarp), None]);
        assert_eq!(find(&class, 7), None);
    }
}
