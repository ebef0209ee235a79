//! The kernel's and the device's side of memory: protection domains, memory regions, memory windows. Functions are
//! named after those of the kernel, and check in the same order.

use std::collections::BTreeMap;

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Changes, Keys};

use crate::data::fault::Left;
use crate::data::space::{Bytes, KeyedRange, Space, Stretch};
use crate::data::window::Window;
use crate::fabric::config::{Config, Flavour, Rereg};
use crate::fabric::table::Table;
use crate::index::{HostNo, MrHandle, MwNo, PdNo, QpNo};

/// The arguments of `ibv_rereg_mr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) flags: Changes,
    pub(crate) pd: Option<PdNo>,
    /// Address 0 is NULL.
    pub(crate) range: Stretch,
    pub(crate) access: Access,
}

/// `struct ib_pd`.
#[derive(Debug)]
struct IbPd {
    host: HostNo,
    users: u32,
}

/// `struct ib_mr`, with its pinned memory.
#[derive(Debug)]
pub(crate) struct IbMr {
    pub(crate) host: HostNo,
    /// The PD that counts it as a user.
    pub(super) pd: PdNo,
    pub(crate) keys: Keys,
    pinned: Stretch,
    /// Its pages are pinned for writing (`ib_umem_get`).
    writable: bool,
    pub(crate) hardware: Option<Hardware>,
}

/// The hardware's record of a registration, used to check a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware {
    pub(crate) pd: PdNo,
    pub(crate) range: Stretch,
    pub(crate) access: Access,
}

/// The object of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keyed {
    Mr(MrHandle),
    Mw(MwNo),
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) space: Space,
    /// [`Config::windows_without_range`].
    pub(crate) windows_without_range: bool,
    /// [`Config::reuses_keys`].
    reuses_keys: bool,
    /// The keys that are free again, the one that is given out next last.
    free_keys: Vec<u32>,
    pds: BTreeMap<PdNo, IbPd>,
    pub(crate) mrs: Table<MrHandle, IbMr>,
    pub(crate) windows: BTreeMap<MwNo, Window>,
    pub(crate) keyed: Table<u32, Keyed>,
    last_pd: u64,
    last_handle: u32,
    last_key: u32,
    pub(crate) last_window: u64,
}

impl Memory {
    pub(crate) fn new(config: &Config) -> Self {
        let &Config { windows_without_range, reuses_keys, .. } = config;
        Memory { windows_without_range, reuses_keys, ..Memory::default() }
    }

    /// `ib_uverbs_alloc_pd`.
    pub(crate) fn alloc_pd(&mut self, host: HostNo) -> PdNo {
        self.last_pd += 1;
        let no = PdNo(self.last_pd);
        self.pds.insert(no, IbPd { host, users: 0 });
        no
    }

    /// `uverbs_free_pd`.
    pub(crate) fn dealloc_pd(&mut self, no: PdNo) -> Result<(), Errno> {
        match self.pds.get(&no).ok_or(Errno::ENOENT)?.users {
            0 => {
                self.pds.remove(&no);
                Ok(())
            }
            _ => Err(Errno::EBUSY),
        }
    }

    /// The number of users that the kernel counts for a PD.
    pub(crate) fn pd_users(&self, no: PdNo) -> Option<u32> {
        self.pds.get(&no).map(|pd| pd.users)
    }

    /// Counts a new user of a PD.
    pub(crate) fn count_user(&mut self, host: HostNo, no: PdNo) -> Result<(), Errno> {
        self.find_pd(host, no)?.users += 1;
        Ok(())
    }

    /// Discounts a user of a PD. Saturates at 0, because a driver fault may discount the wrong PD.
    pub(crate) fn discount_user(&mut self, no: PdNo) {
        if let Some(pd) = self.pds.get_mut(&no) {
            pd.users = pd.users.saturating_sub(1);
        }
    }

    fn find_pd(&mut self, host: HostNo, no: PdNo) -> Result<&mut IbPd, Errno> {
        self.pds.get_mut(&no).filter(|pd| pd.host == host).ok_or(Errno::ENOENT)
    }

    /// Removes the kernel's objects of a removed device (`uverbs_disassociate_api`).
    pub(crate) fn disassociate(&mut self, host: HostNo) {
        self.pds.retain(|_, pd| pd.host != host);
        self.mrs.retain(|_, mr| mr.host != host);
        self.windows.retain(|_, window| window.host != host);
        let (mrs, windows) = (&self.mrs, &self.windows);
        self.keyed.retain(|_, keyed| match keyed {
            Keyed::Mr(mr) => mrs.contains_key(mr),
            Keyed::Mw(mw) => windows.contains_key(mw),
        });
    }

    /// Allocates a unique key. Its low byte is a tag, which a bind changes.
    pub(crate) fn new_key(&mut self) -> Result<u32, Errno> {
        if let Some(key) = self.free_keys.pop() {
            return Ok(key);
        }
        self.last_key = self.last_key.checked_add(0x101).ok_or(Errno::ENOMEM)?;
        Ok(self.last_key)
    }

    /// Forgets the object of a key.
    pub(crate) fn free_key(&mut self, key: u32) {
        self.keyed.remove(&key);
        if self.reuses_keys {
            self.free_keys.push(key);
        }
    }

    /// `ib_uverbs_reg_mr`. The address in the process and the address for keys are always equal, so their offsets in
    /// a page are too.
    pub(crate) fn reg_mr(
        &mut self,
        config: &Config,
        host: HostNo,
        pd: PdNo,
        range: Stretch,
        access: Access,
    ) -> Result<(MrHandle, Keys), Errno> {
        check_mr_access(config, access)?;
        self.find_pd(host, pd)?;
        check_driver_access(access)?;
        self.pin(config, host, range)?;
        let keys = self.new_keys()?;
        self.count_user(host, pd)?;
        self.last_handle += 1;
        let handle = MrHandle(self.last_handle);
        let hardware = Some(Hardware { pd, range, access });
        let mr = IbMr { host, pd, keys, pinned: range, writable: is_writable(access), hardware };
        self.mrs.insert(handle, mr);
        self.keyed.insert(keys.lkey, Keyed::Mr(handle));
        Ok((handle, keys))
    }

    /// `ib_uverbs_rereg_mr`, and the driver. A fault applies after all checks of the driver.
    pub(crate) fn rereg_mr(
        &mut self,
        config: &Config,
        host: HostNo,
        handle: MrHandle,
        request: &Request,
        fault: impl FnOnce() -> Option<(Errno, Left)>,
    ) -> Result<Keys, Errno> {
        let named = |flag| request.flags.contains(flag);
        if config.rereg == Rereg::PdAccess && config.flavour == Flavour::Linux6_1 {
            return Err(Errno::EOPNOTSUPP);
        }
        if request.flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        if !(request.flags - Changes::all()).is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        let old = self.mrs.get(&handle).filter(|mr| mr.host == host).ok_or(Errno::ENOENT)?;
        let (old_pd, old_range, old_writable, old_hardware) = (old.pd, old.pinned, old.writable, old.hardware);
        if named(Changes::ACCESS) {
            check_mr_access(config, request.access)?;
        }
        let mut pd = old_pd;
        if named(Changes::PD) {
            // `None` is NULL, with which the real library crashes. No PD has the number 0.
            pd = request.pd.unwrap_or(PdNo(0));
            self.find_pd(host, pd)?;
        }

        // The driver. It fails if the MR has no registration in hardware (hns).
        let hardware = old_hardware.ok_or(Errno::EINVAL)?;
        if named(Changes::TRANSLATION) && config.rereg == Rereg::PdAccess {
            return Err(Errno::EOPNOTSUPP);
        }
        let access = if named(Changes::ACCESS) { request.access } else { hardware.access };
        check_driver_access(access)?;
        let (range, writable) = if named(Changes::TRANSLATION) {
            self.pin(config, host, request.range)?;
            (request.range, is_writable(access))
        } else if is_writable(access) && !old_writable {
            // `ib_umem_check_rereg`
            return Err(Errno::EACCES);
        } else {
            (old_range, old_writable)
        };
        let wanted = Hardware { pd, range, access };
        if let Some((errno, left)) = fault() {
            self.leave(handle, wanted, left);
            return Err(errno);
        }
        let keys = if config.new_keys_on_rereg && config.rereg == Rereg::All { Some(self.new_keys()?) } else { None };
        if pd != old_pd {
            self.count_user(host, pd)?;
            self.discount_user(old_pd);
        }
        let mr = self.mrs.get_mut(&handle).ok_or(Errno::ENOENT)?;
        (mr.pd, mr.pinned, mr.writable, mr.hardware) = (pd, range, writable, Some(wanted));
        if let Some(keys) = keys {
            let old = std::mem::replace(&mut mr.keys, keys);
            self.free_key(old.lkey);
            self.keyed.insert(keys.lkey, Keyed::Mr(handle));
        }
        Ok(keys.unwrap_or(self.mrs.get(&handle).ok_or(Errno::ENOENT)?.keys))
    }

    /// Applies the effect of a failed driver to a registration. The counts do not change.
    fn leave(&mut self, handle: MrHandle, wanted: Hardware, left: Left) {
        let Some(mr) = self.mrs.get_mut(&handle) else { return };
        match left {
            Left::Old => {}
            Left::New => mr.hardware = Some(wanted),
            Left::Neither => mr.hardware = None,
            Left::NeitherAndPdSwitched => {
                mr.hardware = None;
                mr.pd = wanted.pd;
            }
        }
    }

    /// `uverbs_free_mr` and `rxe_dereg_mr`.
    pub(crate) fn dereg_mr(&mut self, host: HostNo, handle: MrHandle) -> Result<(), Errno> {
        let mr = self.mrs.get(&handle).filter(|mr| mr.host == host).ok_or(Errno::ENOENT)?;
        let (pd, lkey) = (mr.pd, mr.keys.lkey);
        if self.windows.values().any(|window| window.is_bound_to(handle, lkey)) {
            return Err(Errno::EINVAL);
        }
        self.mrs.remove(&handle);
        self.free_key(lkey);
        self.discount_user(pd);
        Ok(())
    }

    /// Whether the device may access any byte of a stretch.
    pub(crate) fn refers_to(&self, stretch: Stretch) -> bool {
        let overlaps = |range: Stretch| {
            range.addr < stretch.addr.saturating_add(stretch.len as u64)
                && stretch.addr < range.addr.saturating_add(range.len as u64)
        };
        self.mrs.any(|mr| mr.hardware.is_some_and(|hardware| overlaps(hardware.range)))
    }

    /// `ib_umem_get`.
    fn pin(&self, config: &Config, host: HostNo, range: Stretch) -> Result<(), Errno> {
        if range.len == 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = |range: Stretch| (range.pages().end - range.pages().start) * crate::data::space::PAGE;
        let pinned = || self.mrs.sum(|mr| if mr.host == host { bytes(mr.pinned) } else { 0 });
        if config.lock_limit.is_some_and(|limit| pinned().saturating_add(bytes(range)) > limit) {
            return Err(Errno::ENOMEM);
        }
        self.space.bytes(range).map(|_| ()).ok_or(Errno::EFAULT)
    }

    /// Allocates keys. The local and the remote key are equal, as in rxe.
    fn new_keys(&mut self) -> Result<Keys, Errno> {
        self.new_key().map(|key| Keys { lkey: key, rkey: key })
    }
}

/// `ib_check_mr_access`.
fn check_mr_access(config: &Config, access: Access) -> Result<(), Errno> {
    let written_by_peers = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if written_by_peers && !access.contains(Access::LOCAL_WRITE) {
        return Err(Errno::EINVAL);
    }
    if access.bits() & !known_access(config.flavour) != 0 {
        return Err(Errno::EINVAL);
    }
    if access.contains(Access::ON_DEMAND) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// `IB_ACCESS_SUPPORTED`: bits 20 to 29 are optional; the flushes came after Linux 6.1.
const fn known_access(flavour: Flavour) -> u32 {
    let optional = 0x3ff0_0000;
    match flavour {
        Flavour::Linux6_1 => optional | 0xff,
        Flavour::Linux6_12 => optional | 0x3ff,
    }
}

/// `IBV_ACCESS_ZERO_BASED`.
const ZERO_BASED: u32 = 32;

/// Rejects access rights that the driver does not support (`RXE_ACCESS_SUPPORTED_MR`).
fn check_driver_access(access: Access) -> Result<(), Errno> {
    if access.intersects(Access::HUGETLB | Access::from_bits_retain(ZERO_BASED)) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// `ib_access_writable`: whether the device may write to the pages.
fn is_writable(access: Access) -> bool {
    access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND)
}

/// Key checks by the hardware when it executes a work request or a packet. An empty range needs no key (`check_rkey`
/// and `copy_data` of rxe).
impl Memory {
    /// The source memory of a send or write; `None` if the hardware rejects it.
    pub(crate) fn for_local_read(&self, pd: PdNo, keyed_range: KeyedRange) -> Option<&[u8]> {
        if keyed_range.len == 0 {
            return Some(&[]);
        }
        self.local(pd, keyed_range)?;
        self.space.bytes(keyed_range.stretch())
    }

    /// Returns the bytes of the sources of a send or write; `None` if the hardware rejects them.
    pub(crate) fn gather(&self, pd: PdNo, ranges: &[KeyedRange]) -> Option<Bytes> {
        let mut bytes = Bytes::with_capacity(ranges.iter().map(|range| range.len).sum());
        for &range in ranges {
            bytes.extend_from_slice(self.for_local_read(pd, range)?);
        }
        Some(bytes)
    }

    /// The target memory of a receive or read; `None` if the hardware rejects it.
    pub(crate) fn for_local_write(&mut self, pd: PdNo, keyed_range: KeyedRange) -> Option<&mut [u8]> {
        if keyed_range.len == 0 {
            return Some(&mut []);
        }
        self.local(pd, keyed_range).filter(|hardware| hardware.access.contains(Access::LOCAL_WRITE))?;
        self.space.bytes_mut(keyed_range.stretch())
    }

    /// Memory that the peer of a QP accesses by the key of an MR or of a window; `None` if the hardware rejects it.
    pub(crate) fn for_remote(
        &mut self,
        qp: QpNo,
        pd: PdNo,
        keyed_range: KeyedRange,
        needs: Access,
    ) -> Option<&mut [u8]> {
        if keyed_range.len == 0 {
            return Some(&mut []);
        }
        let allowed = match *self.keyed.get(&keyed_range.key)? {
            Keyed::Mr(handle) => {
                let mr = self.mrs.get(&handle).filter(|mr| mr.host == qp.host)?;
                mr.hardware.filter(|hardware| hardware.pd == pd && hardware.access.contains(needs))?.range
            }
            Keyed::Mw(no) => self.through_window(qp, pd, no, needs)?,
        };
        if !allowed.contains(keyed_range.stretch()) {
            return None;
        }
        self.space.bytes_mut(keyed_range.stretch())
    }

    /// The domain of an MR that peers may write to.
    pub(super) fn peers_write_to(&self, mr: MrHandle) -> Option<PdNo> {
        let mr = self.mrs.get(&mr)?;
        mr.hardware.filter(|hardware| hardware.access.lets_peers_write()).map(|_| mr.pd)
    }

    /// The MR that a key of a peer gives access to.
    pub(super) fn named_by(&self, key: u32) -> Option<MrHandle> {
        match *self.keyed.get(&key)? {
            Keyed::Mr(mr) => Some(mr),
            Keyed::Mw(no) => self.windows.get(&no)?.bound.as_ref().map(|bound| bound.mr),
        }
    }

    fn local(&self, pd: PdNo, keyed_range: KeyedRange) -> Option<Hardware> {
        let Keyed::Mr(handle) = *self.keyed.get(&keyed_range.key)? else { return None };
        let hardware = self.mrs.get(&handle)?.hardware?;
        (hardware.pd == pd && hardware.range.contains(keyed_range.stretch())).then_some(hardware)
    }
}

#[cfg(test)]
mod tests;
