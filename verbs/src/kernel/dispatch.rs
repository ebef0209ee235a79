//! One function for each call on an id.
//!
//! None is inlined into [`Device::call`](cmid_proto::Device::call), so that it does not reserve the stack and the
//! registers of the largest one.

use core::net::SocketAddr;

use cmid_proto::{CmOption, ConnParam, Ece, Errno, GroupKey, IdKey, Outcome, RejectReason};

use crate::kernel::device::KernelCm;
use crate::kernel::location::{Depths, Location};

impl KernelCm {
    #[inline(never)]
    pub(super) fn bind(&mut self, key: IdKey, addr: &SocketAddr) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.bind(addr, &mut self.scratch)
    }

    #[inline(never)]
    pub(super) fn resolve_addr(
        &mut self,
        key: IdKey,
        src: &Option<SocketAddr>,
        dst: &SocketAddr,
        timeout_ms: i32,
    ) -> Outcome {
        let id = self.find(key)?;
        id.resolve_addr(src, dst, timeout_ms)
    }

    #[inline(never)]
    pub(super) fn resolve_route(&mut self, key: IdKey, timeout_ms: i32) -> Outcome {
        let id = self.find(key)?;
        id.resolve_route(timeout_ms)
    }

    #[inline(never)]
    pub(super) fn listen(&mut self, key: IdKey, backlog: i32) -> Outcome {
        let id = self.find(key)?;
        id.listen(backlog)
    }

    #[inline(never)]
    pub(super) fn connect(&mut self, key: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.connect(&mut self.scratch, param, private_data, self.limits)
    }

    #[inline(never)]
    pub(super) fn accept(&mut self, key: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.accept(key, &mut self.scratch, param, private_data, self.limits)
    }

    /// As a connect, with the limits of the id's device, which `limits_of` returns.
    #[inline(always)]
    pub(crate) fn connect_within(
        &mut self,
        key: IdKey,
        param: &ConnParam,
        private_data: &[u8],
        limits_of: impl FnOnce(Location) -> Result<Depths, Errno>,
    ) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.query_limits(param, &mut self.scratch, limits_of)?;
        id.connect(&mut self.scratch, param, private_data, self.limits)
    }

    /// As an accept, with the limits of the id's device, which `limits_of` returns.
    #[inline(always)]
    pub(crate) fn accept_within(
        &mut self,
        key: IdKey,
        param: &ConnParam,
        private_data: &[u8],
        limits_of: impl FnOnce(Location) -> Result<Depths, Errno>,
    ) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        id.query_limits(param, &mut self.scratch, limits_of)?;
        id.accept(key, &mut self.scratch, param, private_data, self.limits)
    }

    #[inline(never)]
    pub(super) fn reject(&mut self, key: IdKey, reason: RejectReason, private_data: &[u8]) -> Outcome {
        let id = self.find(key)?;
        id.reject(reason, private_data)
    }

    #[inline(never)]
    pub(super) fn establish(&mut self, key: IdKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        if id.qp.is_some() { Err(Errno::EINVAL) } else { id.establish(&mut self.scratch) }
    }

    #[inline(never)]
    pub(super) fn disconnect(&mut self, key: IdKey) -> Outcome {
        let id = self.find(key)?;
        id.disconnect()
    }

    #[inline(never)]
    pub(super) fn notify(&mut self, key: IdKey) -> Outcome {
        let id = self.find(key)?;
        id.notify()
    }

    #[inline(never)]
    pub(super) fn set_option(&mut self, key: IdKey, option: CmOption) -> Outcome {
        let id = self.find(key)?;
        id.fd.set(id.handle, option)
    }

    #[inline(never)]
    pub(super) fn set_ece(&mut self, key: IdKey, ece: Ece) -> Outcome {
        let id = self.find(key)?;
        id.set_ece(ece)
    }

    #[inline(never)]
    pub(super) fn join(&mut self, key: IdKey, group: GroupKey, addr: &SocketAddr, send_only: bool) -> Outcome {
        let id = self.find(key)?;
        id.join(group, addr, send_only)
    }

    #[inline(never)]
    pub(super) fn leave(&mut self, key: IdKey, group: GroupKey, addr: &SocketAddr) -> Outcome {
        let id = self.find(key)?;
        id.leave(group, addr)
    }
}
