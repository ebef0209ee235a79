//! Protection domains.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Weak;

use cmid_proto::datapath::{Access, AhAttr, Completion, CreateCall, CreateError, Pool, ProtectionDomain, SrqCaps};
use cmid_proto::memory::{self, Bindings, Domain, MemoryError, MemoryRefused, PdState};
use cmid_proto::{Errno, ErrorWith};

use crate::data::ah::Ah;
use crate::data::blocks::Piece;
use crate::data::buffer::Buffer;
use crate::data::fault::Resource;
use crate::data::mr::Mr;
use crate::data::mw::Mw;
use crate::data::srq::Srq;
use crate::fabric::Fabric;
use crate::fabric::shared::Shared;
use crate::fabric::world::World;
use crate::index::{DeviceNo, PdNo};

/// The state machines of all protection domains, each with the number of its handles.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    pub(super) live: BTreeMap<PdNo, Held>,
}

/// One domain.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) device: DeviceNo,
    pub(super) domain: Domain,
    pub(super) handles: u32,
    /// The windows that may be bound to its regions.
    pub(super) bindings: Bindings,
}

impl Domains {
    /// The device of a domain.
    pub(crate) fn device_of(&self, no: PdNo) -> Option<DeviceNo> {
        self.live.get(&no).map(|held| held.device)
    }

    /// Returns the record of the windows of a domain. One that is gone has none.
    pub(super) fn bindings(&mut self, no: PdNo) -> Option<&mut Bindings> {
        self.live.get_mut(&no).map(|held| &mut held.bindings)
    }

    pub(crate) fn handle_removal(&mut self, device: DeviceNo) {
        for held in self.live.values_mut().filter(|held| held.device == device) {
            held.domain.handle_removal();
        }
    }
}

impl World {
    /// Allocates a domain with one handle.
    pub(crate) fn alloc_pd(&mut self, device: DeviceNo) -> Result<PdNo, Errno> {
        let mut domain = Domain::alloc();
        let allocated = self.grant(device.host, Resource::Pd).and_then(|()| self.ibv_alloc_pd(device));
        // Cannot fail: the outcome matches the call.
        let _: Result<(), _> = domain.handle_outcome(allocated.map(|_| ()));
        let no = allocated?;
        self.domains.live.insert(no, Held { device, domain, handles: 1, bindings: Bindings::new() });
        Ok(no)
    }

    /// Counts a user of a domain before it is created.
    pub(crate) fn acquire_pd(&mut self, no: PdNo) -> Result<(), MemoryRefused> {
        match self.domains.live.get_mut(&no) {
            Some(held) => held.domain.acquire(),
            None => gone().acquire(),
        }
    }

    /// Counts another use of a domain by an existing user.
    fn share_pd(&mut self, no: PdNo) {
        if let Some(held) = self.domains.live.get_mut(&no) {
            held.domain.share();
        }
    }

    /// Ends one use of a domain: the user is gone, or was not created.
    pub(crate) fn release_pd(&mut self, no: PdNo) {
        if let Some(held) = self.domains.live.get_mut(&no) {
            held.domain.release();
        }
        self.forget_unused_pd(no);
    }

    fn add_handle(&mut self, no: PdNo) {
        if let Some(held) = self.domains.live.get_mut(&no) {
            held.handles += 1;
        }
    }

    fn drop_handle(&mut self, no: PdNo) {
        if let Some(held) = self.domains.live.get_mut(&no) {
            held.handles = held.handles.saturating_sub(1);
        }
        self.forget_unused_pd(no);
    }

    /// Deallocates a domain without handles and users. If the device refuses, the domain stays at the device.
    fn forget_unused_pd(&mut self, no: PdNo) {
        let unused = |held: &Held| held.handles == 0 && held.domain.users() == 0;
        if self.domains.live.get(&no).is_some_and(unused) {
            let _: Result<(), MemoryError> = self.dealloc_pd(no);
            self.domains.live.remove(&no);
        }
    }

    pub(crate) fn dealloc_pd(&mut self, no: PdNo) -> Result<(), MemoryError> {
        let Some(held) = self.domains.live.get_mut(&no) else { return Ok(gone().dealloc()?) };
        held.domain.dealloc()?;
        let device = held.device;
        let outcome = self.ibv_dealloc_pd(device, no);
        if let Some(held) = self.domains.live.get_mut(&no) {
            held.domain.handle_outcome(outcome)?;
        }
        outcome.map_err(MemoryError::Dealloc)
    }
}

/// A domain in its final state.
fn gone() -> Domain {
    let mut domain = Domain::alloc();
    let _: Result<(), _> = domain.handle_outcome(Err(Errno::EINVAL));
    domain
}

/// A protection domain of one host's device (ibv_alloc_pd(3)). Clones are handles of the same domain; it can be used
/// from any thread. It is deallocated with its last handle and last user, or by
/// [`dealloc`](cmid_proto::datapath::ProtectionDomain::dealloc).
#[derive(Debug)]
pub struct Pd {
    pub(crate) fabric: Fabric,
    pub(crate) device: DeviceNo,
    pub(crate) no: PdNo,
}

impl Pd {
    /// Creates another handle of a domain that is in use.
    pub(crate) fn another(fabric: &Fabric, device: DeviceNo, no: PdNo) -> Pd {
        fabric.with(|world| world.add_handle(no));
        Pd { fabric: fabric.clone(), device, no }
    }

    /// Returns the number of users that the simulated device counts independently; `None` if the domain does not exist
    /// at the device. For tests. It differs from [`users`](cmid_proto::datapath::ProtectionDomain::users) after a
    /// driver fault ([`Left::NeitherAndPdSwitched`](crate::Left)), and while a region is unusable after a failed move
    /// to another domain: `users` counts that domain too.
    #[must_use]
    pub fn users_at_device(&self) -> Option<u32> {
        self.fabric.with(|world| world.memory.pd_users(self.no))
    }

    /// Counts a use by an object that is about to be created.
    pub(crate) fn acquire(&self) -> Result<PdUse, MemoryRefused> {
        self.fabric.with(|world| world.acquire_pd(self.no))?;
        Ok(PdUse { shared: self.fabric.weak(), device: self.device, no: self.no })
    }
}

impl Clone for Pd {
    fn clone(&self) -> Self {
        Pd::another(&self.fabric, self.device, self.no)
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // Retries parked regions: this may be the last opportunity.
        self.fabric.shared().sweep();
        self.fabric.with(|world| world.drop_handle(self.no));
    }
}

/// The use of a domain by one user; dropping it ends the use.
#[derive(Debug)]
pub(crate) struct PdUse {
    /// Weak, because a parked region in the fabric holds it.
    shared: Weak<Shared>,
    pub(crate) device: DeviceNo,
    pub(crate) no: PdNo,
}

impl memory::Pd for PdUse {
    fn same_device(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.shared, &other.shared) && self.device == other.device
    }

    fn copies_late(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.with(|world| world.config.copies_late))
    }
}

impl Clone for PdUse {
    fn clone(&self) -> Self {
        if let Some(shared) = self.shared.upgrade() {
            shared.with(|world| world.share_pd(self.no));
        }
        PdUse { shared: Weak::clone(&self.shared), device: self.device, no: self.no }
    }
}

impl Drop for PdUse {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.with(|world| world.release_pd(self.no));
        }
    }
}

impl ProtectionDomain for Pd {
    type Mr = Mr;
    type Mw = Mw;
    type Ah = Ah;
    type Srq = Srq;
    type Piece = Piece;

    /// # Errors
    /// `ENOMEM` beyond [`Config::lock_limit`](crate::Config::lock_limit).
    fn register(&self, buffer: impl Into<Buffer>, access: Access) -> Result<Mr, ErrorWith<Buffer, MemoryError>> {
        Mr::register(self, buffer.into(), access)
    }

    fn pool_with(
        &self,
        others: &[Self],
        buffer: impl Into<Buffer>,
        block_len: usize,
        access: Access,
    ) -> Result<Pool<Piece>, ErrorWith<Buffer, MemoryError>> {
        let pds: Vec<_> = iter::once(self).chain(others).collect();
        Piece::pool(&pds, buffer.into(), block_len, access)
    }

    fn alloc_mw(&self) -> Result<Mw, CreateError> {
        Mw::alloc(self).map_err(CreateCall::AllocMw.failed())
    }

    /// Does not check that the destination exists.
    fn create_ah(&self, path: &AhAttr) -> Result<Ah, CreateError> {
        Ah::create(self, path).map_err(CreateCall::CreateAh.failed())
    }

    fn create_ah_from(&self, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, CreateError> {
        Ah::create_from(self, completion, mr, offset).map_err(CreateCall::CreateAh.failed())
    }

    fn create_srq(&self, caps: SrqCaps) -> Result<Srq, CreateError> {
        Srq::create(self, caps)
    }

    fn users(&self) -> u32 {
        self.fabric.with(|world| world.domains.live.get(&self.no).map_or(0, |held| held.domain.users()))
    }

    fn state(&self) -> PdState {
        self.fabric.with(|world| world.domains.live.get(&self.no).map_or(PdState::Gone, |held| held.domain.state()))
    }

    /// # Errors
    /// [`MemoryError::Dealloc`] with `EBUSY` if the device counts a user that this library does not, with `EIO` after the
    /// device is removed ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    fn dealloc(&self) -> Result<(), MemoryError> {
        self.fabric.shared().sweep();
        self.fabric.with(|world| world.dealloc_pd(self.no))
    }
}

#[cfg(test)]
mod tests {
    use cmid_proto::datapath::ProtectionDomain;

    use super::*;
    use crate::fabric::config::Config;

    fn domain(fabric: &Fabric) -> Pd {
        let host = fabric.host(&["10.0.0.1".parse().unwrap()]).no;
        let device = fabric.with(|world| world.device_at(host, None));
        let no = fabric.with(|world| world.alloc_pd(device)).unwrap();
        Pd { fabric: fabric.clone(), device, no }
    }

    #[test]
    fn the_last_handle_or_user_deallocates() {
        let fabric = Fabric::new(Config::default());
        let there = |no| fabric.with(|world| (world.memory.pd_users(no).is_some(), world.domains.live.len()));
        let pd = domain(&fabric);
        let (no, other) = (pd.no, pd.clone());
        drop(pd);
        assert_eq!(there(no), (true, 1));
        drop(other);
        assert_eq!(there(no), (false, 0));

        let pd = domain(&fabric);
        let (no, one) = (pd.no, pd.acquire().unwrap());
        let two = one.clone();
        assert_eq!(pd.users(), 2);
        drop((pd, one));
        assert_eq!(there(no), (true, 1));
        drop(two);
        assert_eq!(there(no), (false, 0));
    }

    #[test]
    fn a_use_of_a_stranded_domain_can_be_cloned() {
        let fabric = Fabric::new(Config::default());
        let pd = domain(&fabric);
        let one = pd.acquire().unwrap();
        fabric.with(|world| world.remove_device(pd.device.host));
        let two = one.clone();
        assert_eq!(pd.users(), 2);
        drop(two);
        assert_eq!(pd.users(), 1);
        drop(one);
        assert_eq!(pd.users(), 0);
    }

    #[test]
    fn a_use_does_not_keep_the_fabric() {
        let fabric = Fabric::new(Config::default());
        let pd = domain(&fabric);
        let one = pd.acquire().unwrap();
        drop((fabric, pd));
        assert!(one.shared.upgrade().is_none());
        drop(one.clone());
    }
}
