//! Memory windows: access to a part of an MR by another key. Work requests bind and invalidate them.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use core::{fmt, mem};
use std::sync::Arc;

use cmid_proto::datapath::{
    Block, CreateReason, MemoryRegion, MemoryWindow, OfPd, Part, PostCall, PostReason, SendFlags, SendOp, Unposted,
    WcOpcode,
};
use cmid_proto::memory::{Bind, Pd as _};
use cmid_proto::{Errno, ErrorWith};

use crate::accounting::kind::Kind;
use crate::data::parked::TryEnd;
use crate::data::pd::PdUse;
use crate::data::piece::Piece;
use crate::data::poster::Poster;
use crate::data::ranges::Named as _;
use crate::data::request::send_request;
use crate::data::{Access, Mr, Pd, QpInner};
use crate::errno;
use crate::ffi::{
    bind_mw_t, bind_mw_tso_union_t, ibv_mw, ibv_mw_bind_info, ibv_mw_type, ibv_send_wr, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t,
};

/// The number of the next window.
static WINDOWS: AtomicU64 = AtomicU64::new(0);

/// libibverbs' handle of a window, valid until `ibv_dealloc_mw` succeeds.
#[derive(Clone, Copy)]
struct Handle(NonNull<ibv_mw>);

// SAFETY: libibverbs is thread-safe, and a window is tied to no thread.
unsafe impl Send for Handle {}
// SAFETY: libibverbs is thread-safe, and each function that writes to the ibv_mw takes the window by `&mut`.
unsafe impl Sync for Handle {}

/// A memory window of type 2 (ibv_alloc_mw(3)). Dropping it deallocates it, which ends its bind.
///
/// While a request in flight names it, a bind or an invalidation, it is not deallocated: the device knows it by its key, which
/// another window may have after that, and would execute the request on the other one. [`MemoryWindow::dealloc`] returns
/// `EBUSY` then. If it is dropped, it is deallocated when its QP has left its id, or after the poll of the completion, by the
/// next call that retries ([`Mr`]).
///
/// An MR to which a window is bound cannot be deregistered or re-registered
/// ([`MemoryReason::WindowBound`](cmid_proto::memory::MemoryReason::WindowBound)). If it is dropped, it is deregistered
/// with the window. A window keeps the QPs through which it was bound, so such a QP is destroyed after the window. From the end of its id
/// and its handle until then, the QP is in the error state. Soft-RoCE checks the rights of a window but not its range:
/// the key gives access to the whole MR.
#[doc(alias = "ibv_mw")]
pub struct Mw {
    raw: Handle,
    /// The number by which the PD knows it. Not its address: another window may have that as soon as this one is
    /// deallocated, and before the PD knows.
    number: u64,
    /// Whether it is allocated.
    live: bool,
    // Dropped after the window.
    requests: Requests,
    parts: Vec<Lent>,
    pd: PdUse,
}

/// A part to which a window may be bound.
struct Lent {
    /// The remote key of the bind.
    rkey: u32,
    part: Part<Piece>,
    /// Whether it lets the peer write.
    is_written: bool,
    /// Whether this side has invalidated the key, and the peer may be writing.
    is_recalled: bool,
}

impl Lent {
    /// Ends what the device may still write. Soft-RoCE checks the key of a packet, and then copies the packet: neither an
    /// invalidation by this side nor a deallocation waits for the copy, but a deregistration does (`rxe_cleanup`).
    fn settle(&mut self, pd: &PdUse) -> bool {
        let piece = self.part.block_mut().and_then(Block::piece_mut);
        piece.is_none_or(|piece| !self.is_written || !pd.copies_late() || piece.renew())
    }
}

/// Takes the parts of a window that is deallocated, as far as they can be settled now.
fn settled(parts: &mut Vec<Lent>, pd: &PdUse) -> Vec<Part<Piece>> {
    let mut own = Vec::new();
    for mut lent in mem::take(parts) {
        if lent.settle(pd) {
            own.push(lent.part);
        } else {
            parts.push(lent);
        }
    }
    own
}

/// The QPs through which a window was bound, each once with the number of its last request that names the window, in the order
/// of the last binds. The destruction of a QP with a bound window takes 50 s on rxe, and leaves wrong reference counts
/// (`__rxe_cleanup`). Which of these QPs has bound the window is known only from completions.
#[derive(Default)]
struct Requests(Vec<(Arc<QpInner>, u32)>);

impl Requests {
    /// Adds a request that was posted with this token.
    fn add(&mut self, qp: &Arc<QpInner>, token: u64) {
        self.0.retain(|(other, _)| !Arc::ptr_eq(other, qp));
        self.0.push((Arc::clone(qp), token as u32));
    }

    /// Whether one of them may still be executed.
    fn are_open(&self) -> bool {
        self.0.iter().any(|(qp, number)| qp.may_execute(*number))
    }
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd) -> Result<Mw, CreateReason> {
        let pd = pd.enter()?;
        // SAFETY: the PD is allocated, because it has a user, and its context is open; the operation table does not
        // change.
        let alloc = unsafe { (*(*pd.as_ptr()).context).ops.alloc_mw }.ok_or(Errno::ENOSYS)?;
        // SAFETY: as above; this is the call of that device.
        let raw = Handle(errno::of_new(|| unsafe { alloc(pd.as_ptr(), ibv_mw_type::IBV_MW_TYPE_2) })?);
        let number = WINDOWS.fetch_add(1, Ordering::Relaxed);
        Ok(Mw { raw, number, live: true, requests: Requests::default(), parts: Vec::new(), pd })
    }
}

impl MemoryWindow for Mw {
    type Piece = Piece;

    fn reclaim(&mut self) -> Option<Part<Piece>> {
        let number = self.number();
        let at = {
            let bindings = self.pd.inner().bindings();
            self.parts.iter().position(|lent| !bindings.is_bound(number, lent.rkey))?
        };
        let lent = self.parts.get_mut(at)?;
        let is_over = !lent.is_recalled || lent.settle(&self.pd);
        is_over.then(|| self.parts.remove(at).part)
    }

    fn rkey(&self) -> u32 {
        // SAFETY: the window is allocated; each function that writes to it takes it by `&mut`.
        unsafe { self.raw.0.as_ref() }.rkey
    }

    fn dealloc(mut self) -> Result<Vec<Part<Piece>>, ErrorWith<Self, Errno>> {
        let deallocated = if self.requests.are_open() {
            Err(Errno::EBUSY)
        } else if self.pd.inner().is_inherited() {
            Err(Errno::EACCES)
        } else {
            // SAFETY: the window is allocated, and no function but `drop` is called after a success.
            unsafe { dealloc(self.raw, self.number, &self.pd) }
        };
        match deallocated {
            Ok(()) => {
                self.live = false;
                // What cannot be settled now goes as if the window were dropped.
                Ok(settled(&mut self.parts, &self.pd))
            }
            Err(error) => Err(ErrorWith::new(self, error)),
        }
    }
}

impl Mw {
    /// Returns a number that no other window of the process has had.
    fn number(&self) -> u64 {
        self.number
    }
}

/// Deallocates a window, and ends its binds.
///
/// # Safety
/// It is allocated, of this PD, and not used after a success. No request in flight names it, and no post of it is under way.
unsafe fn dealloc(raw: Handle, number: u64, pd: &PdUse) -> Result<(), Errno> {
    // SAFETY: as the caller promises. The context of the PD is open, because the PD has a user.
    unsafe {
        let dealloc = (*(*pd.as_ptr()).context).ops.dealloc_mw.ok_or(Errno::ENOSYS)?;
        errno::of_call(|| dealloc(raw.0.as_ptr()))?;
    }
    pd.inner().bindings().dealloc(number);
    Ok(())
}

impl Drop for Mw {
    fn drop(&mut self) {
        let parts = mem::take(&mut self.parts);
        if self.pd.inner().is_inherited() {
            mem::forget(parts);
            return;
        }
        let (raw, number, live, requests) = (self.raw, self.number, self.live, mem::take(&mut self.requests));
        self.pd.inner().parked().end(Box::new(LeftMw { raw, number, live, requests, parts, pd: self.pd.clone() }));
    }
}

/// A window whose handle is dropped. Its own drop leaks the parts that are not returned.
struct LeftMw {
    raw: Handle,
    number: u64,
    live: bool,
    // Dropped after the window.
    requests: Requests,
    parts: Vec<Lent>,
    pd: PdUse,
}

impl LeftMw {
    /// Returns the parts of a window that is deallocated. What cannot be settled now is that of its QPs, whose ends settle it.
    fn return_parts(&mut self) {
        let (qps, own) = (mem::take(&mut self.requests).0, settled(&mut self.parts, &self.pd));
        let left: Arc<[_]> = self.parts.drain(..).map(|lent| lent.part).collect();
        qps.iter().for_each(|(qp, _)| qp.keep_parts(&left));
        // It may have blocked the deregistration of a dropped MR.
        self.pd.inner().parked().released();
        // Last, because the owner of a buffer may panic.
        drop((own, left, qps));
    }
}

impl Drop for LeftMw {
    fn drop(&mut self) {
        self.parts.drain(..).for_each(mem::forget);
    }
}

impl TryEnd for LeftMw {
    fn try_end(&mut self) -> bool {
        let pd = Arc::clone(self.pd.inner());
        if pd.is_inherited() || self.live && self.requests.are_open() {
            return false;
        }
        if self.live {
            // SAFETY: it is allocated, because a success ends it, and no post of it is under way, because its handle is dropped.
            if let Err(errno) = unsafe { dealloc(self.raw, self.number, &self.pd) } {
                // If the kernel refuses, it is leaked. It stays bound then, unless the kernel has taken its device away.
                if !pd.is_gone() || !matches!(errno, Errno::EIO | Errno::ENODEV) {
                    return true;
                }
                pd.bindings().dealloc(self.number);
            }
            self.live = false;
        }
        self.return_parts();
        true
    }
}

impl Poster {
    pub(super) fn bind_window(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        memory: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), PostReason> {
        if !window.pd.is_of(&self.inner.pd) {
            return Err(PostReason::OtherPd(OfPd::Mw));
        }
        let needed = access.needed_to_bind().ok_or(PostReason::NotOfWindow(access))?;
        let part = memory.sge(range).range(self.pd, false)?;
        let missing = needed.difference(memory.access().unwrap_or(Access::empty()));
        if !missing.is_empty() {
            return Err(PostReason::LacksRight(missing));
        }
        if self.is_datagram {
            return Err(PostReason::IsDatagram);
        }
        let number = window.number();
        if !self.inner.pd.inner().bindings().may_bind(number) {
            return Err(PostReason::TooManyBinds);
        }
        let bind_info = ibv_mw_bind_info {
            mr: memory.as_ptr().ok_or(PostReason::NotRegistered)?,
            addr: part.addr,
            length: u64::from(part.length),
            // Only the rights of a peer (`needed_to_bind`).
            mw_access_flags: access.bits(),
        };
        let rkey = next_key(window.rkey());
        let token = self.file_send(wr_id, &[part.lkey], Kind::of(WcOpcode::BIND_MW))?;
        self.add_window(token);
        let qp_num = self.inner.qp_num();
        self.inner.pd.inner().bindings().bind(number, Bind { qp_num, lkey: part.lkey, rkey, access });
        // Window and registration are borrowed. They are of the same PD, and so of the same device.
        let answer = if let Some(api) = self.wr_api {
            // SAFETY: the QP is alive, connected, and posting takes it by `&mut`.
            let mut batch = unsafe { api.start() };
            // SAFETY: the QP is connected, and window and registration are alive and of its PD.
            unsafe { batch.push_bind(token, window.raw.0.as_ptr(), rkey, &bind_info) };
            batch.complete()
        } else {
            let mut request = command(token, ibv_wr_opcode::IBV_WR_BIND_MW);
            request.bind_mw_tso_union =
                bind_mw_tso_union_t { bind_mw: bind_mw_t { mw: window.raw.0.as_ptr(), rkey, bind_info } };
            self.post_filed(&mut request)
        };
        // Also after an error: the provider may execute the bind nevertheless, and then this QP has bound the window.
        // SAFETY: the window is allocated, and borrowed by `&mut`. The application updates this field (ibv_bind_mw(3)).
        unsafe { window.raw.0.as_mut() }.rkey = rkey;
        window.requests.add(&self.inner, token);
        self.settle(answer).inspect_err(|_| self.inner.pd.inner().bindings().bind_failed(number))
    }

    /// As `bind_window`, to a part of a block, which the window has then.
    pub(super) fn bind_block(
        &mut self,
        wr_id: u64,
        window: &mut Mw,
        part: Part<Piece>,
        access: Access,
    ) -> Result<(), Unposted<Piece>> {
        let posted = match part.place(access.lets_peers_write()).and_then(|(piece, range)| piece.of_mr(range, self.pd))
        {
            Ok((mr, range)) => self.bind_window(wr_id, window, mr, range, access),
            Err(reason) => Err(reason),
        };
        match posted {
            Ok(()) | Err(PostReason::Device(_)) => {
                let is_written = access.lets_peers_write();
                window.parts.push(Lent { rkey: window.rkey(), part, is_written, is_recalled: false });
                posted.map_err(|reason| ErrorWith::new(None, self.error(PostCall::Bind, reason)))
            }
            Err(reason) => Err(ErrorWith::new(Some(part.into()), self.error(PostCall::Bind, reason))),
        }
    }

    pub(super) fn invalidate_window(&mut self, wr_id: u64, window: &mut Mw) -> Result<(), PostReason> {
        // rxe follows null pointers when a window is not bound (`rxe_do_invalidate_mw`). On the QP of the bind, this
        // request is executed only after a successful bind. A window that was bound through this QP is of its PD.
        let (number, qp_num) = (window.number(), self.inner.qp_num());
        if !window.pd.is_of(&self.inner.pd) {
            return Err(PostReason::OtherPd(OfPd::Mw));
        }
        if !self.inner.pd.inner().bindings().may_invalidate(number, qp_num) {
            return Err(PostReason::NotBound);
        }
        let token = self.file_send(wr_id, &[], Kind::of(WcOpcode::LOCAL_INV))?;
        let invalidation = self.inner.pd.inner().bindings().invalidate(number, qp_num);
        let rkey = window.rkey();
        window.parts.iter_mut().filter(|lent| lent.rkey == rkey).for_each(|lent| lent.is_recalled = true);
        let answer = if let Some(api) = self.wr_api {
            // SAFETY: the QP is alive, and posting takes it by `&mut`.
            let mut batch = unsafe { api.start() };
            // SAFETY: the QP is connected, because a window was bound through it.
            unsafe { batch.push_invalidate(token, window.rkey()) };
            batch.complete()
        } else {
            let mut request = command(token, ibv_wr_opcode::IBV_WR_LOCAL_INV);
            request.imm_data_invalidated_rkey_union =
                imm_data_invalidated_rkey_union_t { invalidated_rkey: window.rkey() };
            self.post_filed(&mut request)
        };
        window.requests.add(&self.inner, token);
        self.settle(answer).inspect_err(|_| self.inner.pd.inner().bindings().invalidate_failed(invalidation))
    }
}

/// Returns a signaled request without data.
fn command(token: u64, opcode: u32) -> ibv_send_wr {
    let mut request = send_request(token, SendOp::Send, SendFlags::SIGNALED, false);
    request.opcode = opcode;
    request
}

/// Returns the key with the lower byte incremented, as `ibv_inc_rkey`. That byte belongs to the application.
const fn next_key(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

impl fmt::Debug for Mw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mw").field("rkey", &self.rkey()).finish_non_exhaustive()
    }
}
