//! One function for each call on an id.
//!
//! None is inlined into [`Device::call`](cmid_proto::Device::call), so that it does not reserve the stack and the
//! registers of the largest one.

use core::net::SocketAddr;

use cmid_proto::{CmOption, ConnParam, Ece, Errno, GroupKey, IdKey, Outcome, RejectReason};

use crate::kernel::calls::set_option;
use crate::kernel::device::KernelCm;

impl KernelCm {
    #[inline(never)]
    pub(super) fn bind(&mut self, key: IdKey, addr: &SocketAddr) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let channel = self.channels.get(id.channel).ok_or(Errno::EBADF)?;
        id.bind(channel, addr, &mut self.answer)
    }

    #[inline(never)]
    pub(super) fn resolve_addr(
        &mut self,
        key: IdKey,
        src: &Option<SocketAddr>,
        dst: &SocketAddr,
        timeout_ms: i32,
    ) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.resolve_addr(channel, src, dst, timeout_ms)
    }

    #[inline(never)]
    pub(super) fn resolve_route(&mut self, key: IdKey, timeout_ms: i32) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.resolve_route(channel, timeout_ms)
    }

    #[inline(never)]
    pub(super) fn listen(&mut self, key: IdKey, backlog: i32) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.listen(channel, backlog)
    }

    #[inline(never)]
    pub(super) fn connect(&mut self, key: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let channel = self.channels.get(id.channel).ok_or(Errno::EBADF)?;
        id.connect(channel, &mut self.scratch, param, private_data, self.limits)
    }

    #[inline(never)]
    pub(super) fn accept(&mut self, key: IdKey, param: &ConnParam, private_data: &[u8]) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let channel = self.channels.get(id.channel).ok_or(Errno::EBADF)?;
        id.accept(key, channel, &mut self.scratch, param, private_data, self.limits)
    }

    #[inline(never)]
    pub(super) fn reject(&mut self, key: IdKey, reason: RejectReason, private_data: &[u8]) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.reject(channel, reason, private_data)
    }

    #[inline(never)]
    pub(super) fn establish(&mut self, key: IdKey) -> Outcome {
        let id = self.ids.get_mut(key).ok_or(Errno::ENOENT)?;
        let channel = self.channels.get(id.channel).ok_or(Errno::EBADF)?;
        if id.qp.is_some() { Err(Errno::EINVAL) } else { id.establish(channel, &mut self.scratch) }
    }

    #[inline(never)]
    pub(super) fn disconnect(&mut self, key: IdKey) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.disconnect(channel)
    }

    #[inline(never)]
    pub(super) fn notify(&mut self, key: IdKey) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.notify(channel)
    }

    #[inline(never)]
    pub(super) fn set_option(&mut self, key: IdKey, option: CmOption) -> Outcome {
        let (id, channel) = self.find(key)?;
        set_option(channel, id.handle, option)
    }

    #[inline(never)]
    pub(super) fn set_ece(&mut self, key: IdKey, ece: Ece) -> Outcome {
        let (id, _) = self.find(key)?;
        id.set_ece(ece)
    }

    #[inline(never)]
    pub(super) fn join(&mut self, key: IdKey, group: GroupKey, addr: &SocketAddr, send_only: bool) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.join(channel, group, addr, send_only)
    }

    #[inline(never)]
    pub(super) fn leave(&mut self, key: IdKey, group: GroupKey, addr: &SocketAddr) -> Outcome {
        let (id, channel) = self.find(key)?;
        id.leave(channel, group, addr)
    }
}
