//! Posting work requests.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;

use cmid_proto::Errno;

use crate::data::wr_ring::NO_KEY;
use crate::data::{Mr, Qp, To};
use crate::errno;
use crate::ffi::{ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t, ud_t, wr_t};

/// Where at the peer an RDMA read or write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The peer's address: its [`Mr::addr`] and an offset.
    pub addr: u64,
    /// The peer's [`Mr::rkey`].
    pub rkey: u32,
}

impl Qp {
    /// Posts a message to be sent (`IBV_WR_SEND`).
    ///
    /// # Errors
    /// `EINVAL` if the range is not inside the memory, also for an empty one if the memory is unusable or of another
    /// [`Pd`](crate::Pd) than the QP, if the QP is in no state for it, or if it is one for datagrams; `ENOMEM` if the
    /// queue is full: with work that is not done, or whose completions have not been polled.
    #[inline]
    pub fn post_send(&mut self, wr_id: u64, memory: &Mr, range: Range<usize>) -> Result<(), Errno> {
        let sge = self.source(memory, range)?;
        let flags = self.inline_flag(&sge);
        self.post(wr_id, sge, ibv_wr_opcode::IBV_WR_SEND, flags, Remote { addr: 0, rkey: 0 })
    }

    /// Posts a datagram to be sent (`IBV_WR_SEND`). It should fit into one packet: a longer one is lost, and some
    /// devices complete it as if it were not.
    ///
    /// # Errors
    /// `EINVAL` if the range is not inside the memory, if memory or address handle are of another [`Pd`](crate::Pd)
    /// than the QP, if the QP is in no state for it, or if it is not one for datagrams; `ENOMEM` if the queue is full.
    #[inline]
    pub fn post_send_to(&mut self, wr_id: u64, memory: &Mr, range: Range<usize>, to: To<'_>) -> Result<(), Errno> {
        let sge = self.source(memory, range)?;
        let flags = self.inline_flag(&sge);
        self.post_to(wr_id, sge, flags, to)
    }

    /// Posts a place for a message to arrive at (`ibv_post_recv`). A datagram takes [`GRH_LEN`](crate::GRH_LEN) bytes
    /// more.
    ///
    /// # Errors
    /// As [`Qp::post_send`]; `EINVAL` also if the registration has not
    /// [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE).
    // Unlike the others it fits into a loop, but the compiler does not see that.
    #[inline(always)]
    pub fn post_recv(&mut self, wr_id: u64, memory: &Mr, range: Range<usize>) -> Result<(), Errno> {
        let mut sge = self.target(memory, range)?;
        let token = self.file_recv(wr_id, pinned_key(&sge, 0)).ok_or(Errno::ENOMEM)?;
        let mut request = ibv_recv_wr {
            wr_id: token,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            // Some devices take a length of 0 for 2 GiB.
            num_sge: i32::from(sge.length != 0),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the QP is alive and the function is its provider's, which copies the request before it returns. The
        // memory that it names may be written to, is of the same PD, and is pinned from here on (see `Mr`).
        errno::of_ibv(unsafe { (self.inner.post_recv)(self.inner.as_ptr(), &raw mut request, &raw mut bad) })?;
        self.recv.advance();
        Ok(())
    }

    /// Posts an RDMA read of the peer's memory into `range` (`IBV_WR_RDMA_READ`).
    ///
    /// # Errors
    /// As [`Qp::post_recv`].
    #[inline]
    pub fn post_read(&mut self, wr_id: u64, memory: &Mr, range: Range<usize>, from: Remote) -> Result<(), Errno> {
        self.post(wr_id, self.target(memory, range)?, ibv_wr_opcode::IBV_WR_RDMA_READ, 0, from)
    }

    /// Posts an RDMA write of `range` to the peer's memory (`IBV_WR_RDMA_WRITE`).
    ///
    /// # Errors
    /// As [`Qp::post_send`].
    #[inline]
    pub fn post_write(&mut self, wr_id: u64, memory: &Mr, range: Range<usize>, to: Remote) -> Result<(), Errno> {
        let sge = self.source(memory, range)?;
        let flags = self.inline_flag(&sge);
        self.post(wr_id, sge, ibv_wr_opcode::IBV_WR_RDMA_WRITE, flags, to)
    }

    #[inline]
    fn post(&mut self, wr_id: u64, mut sge: ibv_sge, opcode: u32, flags: u32, remote: Remote) -> Result<(), Errno> {
        let token = self.file_send(wr_id, pinned_key(&sge, flags)).ok_or(Errno::ENOMEM)?;
        let peer = wr_t { rdma: rdma_t { remote_addr: remote.addr, rkey: remote.rkey } };
        let mut request = send_request(token, &mut sge, opcode, flags, peer);
        let (qp, mut bad) = (&self.inner, ptr::null_mut());
        // SAFETY: the QP is alive and connected, and the function is its provider's, which copies the request, and
        // inline data, before it returns. The memory that it names is of the same PD, alive during the call, and
        // pinned from here on if the device or the provider comes back for it (see `Mr`). For a datagram QP, whose
        // provider would follow an address handle that is not there, it is `refuse`.
        errno::of_ibv(unsafe { (qp.post_send)(qp.as_ptr(), &raw mut request, &raw mut bad) })?;
        self.send.advance();
        Ok(())
    }

    #[inline]
    fn post_to(&mut self, wr_id: u64, mut sge: ibv_sge, flags: u32, to: To<'_>) -> Result<(), Errno> {
        // The provider takes it for one of its own.
        if !to.ah.is_of(&self.inner.pd) {
            return Err(Errno::EINVAL);
        }
        let token = self.file_send(wr_id, pinned_key(&sge, flags)).ok_or(Errno::ENOMEM)?;
        let peer = wr_t { ud: ud_t { ah: to.ah.as_ptr(), remote_qpn: to.qp_num, remote_qkey: to.qkey } };
        let mut request = send_request(token, &mut sge, ibv_wr_opcode::IBV_WR_SEND, flags, peer);
        let (qp, mut bad) = (&self.inner, ptr::null_mut());
        // SAFETY: as in `post`, but for a connected QP it is `refuse`. The provider follows the address handle during
        // the call: it is borrowed, and of the same device, because of the same PD.
        errno::of_ibv(unsafe { (qp.post_send_to)(qp.as_ptr(), &raw mut request, &raw mut bad) })?;
        self.send.advance();
        Ok(())
    }

    /// Memory that the device takes bytes from: of the QP's PD, so that what is in flight there pins it (flight.rs).
    #[inline]
    pub(super) fn source(&self, memory: &Mr, range: Range<usize>) -> Result<ibv_sge, Errno> {
        if memory.source == self.pd { memory.sge(range) } else { Err(Errno::EINVAL) }
    }

    /// Memory that the device, or its provider, puts bytes into: as above, and such that may be written to. Not every
    /// provider checks the key.
    #[inline]
    fn target(&self, memory: &Mr, range: Range<usize>) -> Result<ibv_sge, Errno> {
        if memory.target == self.pd { memory.sge(range) } else { Err(Errno::EINVAL) }
    }

    #[inline]
    fn inline_flag(&self, sge: &ibv_sge) -> u32 {
        // An empty message wraps around: nothing to be inlined.
        if sge.length.wrapping_sub(1) < self.inner.max_inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 }
    }
}

/// The key that a work request pins: none if the device need not fetch anything.
#[inline]
fn pinned_key(sge: &ibv_sge, flags: u32) -> u32 {
    let inline = flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0;
    if sge.length == 0 || inline { NO_KEY } else { sge.lkey }
}

/// A work request of one piece of memory, which must live until it is posted.
#[inline]
pub(super) fn send_request(wr_id: u64, sge: &mut ibv_sge, opcode: u32, flags: u32, peer: wr_t) -> ibv_send_wr {
    // SAFETY: zeros are a value of it: integers, null pointers, and unions of such.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.wr_id = wr_id;
    // Some devices take a length of 0 for 2 GiB.
    request.num_sge = i32::from(sge.length != 0);
    request.sg_list = sge;
    request.opcode = opcode;
    request.send_flags = ibv_send_flags::IBV_SEND_SIGNALED.0 | flags;
    request.wr = peer;
    request
}
