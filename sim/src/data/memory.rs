//! The registered memory of all hosts.

use std::collections::BTreeMap;
use std::ops::Range;

use cmid_proto::Errno;

use crate::data::mr::Access;
use crate::host::HostNo;

/// Names one protection domain; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PdNo(pub(crate) u64);

/// The key of a memory region, local and remote alike (as rxe's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MrKey(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) host: HostNo,
    pub(crate) pd: PdNo,
    pub(crate) addr: u64,
    pub(crate) access: Access,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    regions: BTreeMap<MrKey, Region>,
    pds: u64,
    keys: u32,
    used: u64,
}

/// Where the made-up addresses start, and how they are aligned.
const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;

impl Memory {
    pub(crate) fn new_pd(&mut self) -> PdNo {
        self.pds += 1;
        PdNo(self.pds)
    }

    /// `ibv_reg_mr`.
    pub(crate) fn register(
        &mut self,
        host: HostNo,
        pd: PdNo,
        bytes: Vec<u8>,
        access: Access,
    ) -> Result<(MrKey, u64), Errno> {
        let writes_unseen = access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE);
        if bytes.is_empty() || writes_unseen {
            return Err(Errno::EINVAL);
        }
        // The low byte is a tag that changes with each use of a slot; here every key is new.
        self.keys = self.keys.checked_add(0x101).ok_or(Errno::ENOMEM)?;
        let (key, addr) = (MrKey(self.keys), BASE + self.used);
        // A gap of at least a page, so that an access beyond the end never meets another region.
        self.used += (bytes.len() as u64).next_multiple_of(PAGE) + PAGE;
        self.regions.insert(key, Region { host, pd, addr, access, bytes });
        Ok((key, addr))
    }

    pub(crate) fn deregister(&mut self, key: MrKey) -> Option<Vec<u8>> {
        self.regions.remove(&key).map(|region| region.bytes)
    }

    pub(crate) fn local(&self, key: MrKey, range: Range<usize>) -> Result<&[u8], Errno> {
        self.regions.get(&key).and_then(|region| region.bytes.get(range)).ok_or(Errno::EINVAL)
    }

    pub(crate) fn local_mut(&mut self, key: MrKey, range: Range<usize>) -> Result<&mut [u8], Errno> {
        self.regions.get_mut(&key).and_then(|region| region.bytes.get_mut(range)).ok_or(Errno::EINVAL)
    }

    /// Memory that a work request of a QP of `pd` names; `None` where the hardware would object.
    pub(crate) fn for_local_write(&mut self, key: MrKey, pd: PdNo, range: Range<usize>) -> Option<&mut [u8]> {
        let region = self.regions.get_mut(&key).filter(|region| region.pd == pd)?;
        if !region.access.contains(Access::LOCAL_WRITE) {
            return None;
        }
        region.bytes.get_mut(range)
    }

    /// Memory that a peer names by address and key; `None` where the hardware would object.
    pub(crate) fn for_remote(&mut self, host: HostNo, pd: PdNo, place: Place, needs: Access) -> Option<&mut [u8]> {
        let region =
            self.regions.get_mut(&MrKey(place.rkey)).filter(|region| region.host == host && region.pd == pd)?;
        if !region.access.contains(needs) {
            return None;
        }
        let start = usize::try_from(place.addr.checked_sub(region.addr)?).ok()?;
        region.bytes.get_mut(start..start.checked_add(place.len)?)
    }

    pub(crate) fn pd_of(&self, key: MrKey) -> Option<PdNo> {
        self.regions.get(&key).map(|region| region.pd)
    }
}

/// A stretch of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostNo = HostNo(0);

    #[test]
    fn registration_is_checked() {
        let mut memory = Memory::default();
        let pd = memory.new_pd();
        let mut register = |len, access| memory.register(HOST, pd, vec![0; len], access).map(|_| ());
        assert_eq!(register(0, Access::LOCAL_WRITE), Err(Errno::EINVAL));
        assert_eq!(register(1, Access::REMOTE_WRITE), Err(Errno::EINVAL));
        assert_eq!(register(1, Access::REMOTE_WRITE | Access::LOCAL_WRITE), Ok(()));
        assert_eq!(register(1, Access::empty()), Ok(()));
    }

    #[test]
    fn remote_access_needs_bounds_permission_and_the_same_domain() {
        let mut memory = Memory::default();
        let (pd, other) = (memory.new_pd(), memory.new_pd());
        let (key, addr) = memory.register(HOST, pd, vec![7; 16], Access::REMOTE_READ).unwrap();
        let place = |addr, len| Place { addr, rkey: key.0, len };
        let mut reads = |pd, place| memory.for_remote(HOST, pd, place, Access::REMOTE_READ).is_some();
        assert!(reads(pd, place(addr + 8, 8)));
        assert!(!reads(pd, place(addr + 8, 9)));
        assert!(!reads(pd, place(addr - 1, 2)));
        assert!(!reads(pd, place(addr, usize::MAX)));
        assert!(!reads(other, place(addr, 1)));
        assert!(memory.for_remote(HOST, pd, place(addr, 1), Access::REMOTE_WRITE).is_none());
    }
}
