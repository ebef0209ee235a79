//! Shared receive queues.

use core::ptr::{self, NonNull};
use core::{fmt, mem, slice};
use std::sync::Arc;

use cmid_proto::datapath::{
    BatchError, Completion, Lent, Parts, PostCall, PostError, PostReason, Returns, Sge, SharedReceiveQueue, SrqCaps,
    Unposted, UnpostedBatch,
};
use cmid_proto::{Errno, ErrorWith};

use crate::accounting::poll::Provider as _;
use crate::accounting::srq_slots::{MAX_CAPACITY, SrqCursor};
use crate::accounting::srq_table::{SrqId, SrqTable};
use crate::data::cq::CqInner;
use crate::data::pd::PdUse;
use crate::data::ranges::{Named, count, pinned_key, ranges};
use crate::data::staging::{Staging, Stopped, answer};
use crate::data::{Mr, Pd, Piece};
use crate::errno;
use crate::ffi::{self, PostSrqRecv, c_int, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_attr_mask, ibv_srq_init_attr};
use crate::raw;
use crate::sign::signed;

/// The handle of a shared receive queue. It can move between threads. One thread at a time posts: a post takes `&mut
/// self`.
///
/// The SRQ is destroyed when the handle is dropped and its last QP is destroyed. [`SharedReceiveQueue`] describes what
/// its receives pin.
pub struct Srq {
    inner: Arc<SrqInner>,
    /// The name of the PD; see [`Mr::target`](crate::Mr::target).
    pd: usize,
    cursor: SrqCursor,
    /// Created by the first list.
    staging: Option<Box<Staging<ibv_recv_wr>>>,
    /// The blocks that its receives have.
    blocks: Lent<Piece>,
}

/// An SRQ. Its handle and its QPs hold it.
pub(crate) struct SrqInner {
    raw: NonNull<ibv_srq>,
    post_recv: PostSrqRecv,
    /// Whether the transport is iWARP.
    is_iwarp: bool,
    /// The capacities as requested.
    requested: SrqCaps,
    /// The capacities as the provider has rounded them.
    caps: SrqCaps,
    // Dropped after the SRQ.
    table: Arc<SrqTable>,
    pd: PdUse,
}

/// The use of an SRQ by a QP that reports to a CQ. Dropped after the QP.
pub(crate) struct SrqUse {
    srq: Arc<SrqInner>,
    cq: Arc<CqInner>,
    /// The number of the QP; 0 before it is created.
    qp_num: u32,
}

// SAFETY: libibverbs is thread-safe: several threads may post to, modify and query an SRQ at a time. An SRQ is tied to
// no thread.
unsafe impl Send for SrqInner {}
// SAFETY: libibverbs is thread-safe. Of this crate's fields only the slots change, and they are atomics.
unsafe impl Sync for SrqInner {}

impl Srq {
    pub(crate) fn create(pd: &Pd, caps: SrqCaps) -> Result<Self, Errno> {
        let is_iwarp = pd.context().is_iwarp();
        if !(1..=MAX_CAPACITY).contains(&caps.max_wr) {
            return Err(Errno::EINVAL);
        }
        let pd = pd.enter().map_err(|refused| refused.errno())?;
        if !pd.inner().vendor().has_srqs() {
            return Err(Errno::EOPNOTSUPP);
        }
        let id = SrqId::assign().ok_or(Errno::ENOMEM)?;
        // SAFETY: the context is open, because the PD is on it; its operation table does not change after that.
        let post_recv = unsafe { (*(*pd.as_ptr()).context).ops.post_srq_recv }.ok_or(Errno::ENOSYS)?;
        let attr = ibv_srq_attr { max_wr: caps.max_wr, max_sge: caps.max_sge, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the PD is allocated, and outlives the SRQ, which holds it. The attributes are read and written
        // during the call.
        let raw = errno::of_new(|| unsafe { ffi::ibv_create_srq(pd.as_ptr(), &raw mut init) })?;
        let table = Arc::new(SrqTable::new(id, pd.inner(), caps));
        let cursor = SrqCursor::new(table.slots());
        let rounded = SrqCaps { max_wr: init.attr.max_wr, max_sge: init.attr.max_sge };
        let name = pd.name();
        let inner = Arc::new(SrqInner { raw, post_recv, is_iwarp, requested: caps, caps: rounded, table, pd });
        Ok(Srq { inner, pd: name, cursor, staging: None, blocks: Lent::new(caps.max_wr) })
    }

    /// Its PD.
    pub(super) fn pd(&self) -> Pd {
        self.inner.pd.pd()
    }

    pub(super) fn table(&self) -> &SrqTable {
        &self.inner.table
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_srq {
        self.inner.as_ptr()
    }

    /// Returns the reason of a full queue.
    #[cold]
    fn full(&self) -> PostReason {
        PostReason::QueueFull { max: self.inner.requested.max_wr }
    }

    /// Returns the error of a post.
    #[cold]
    fn error(&self, reason: PostReason) -> PostError {
        PostError::new(PostCall::SrqRecv, self.num(), reason)
    }

    /// Posts a list. Returns what the provider returns, and the first receive that it has not posted.
    fn post_list(&self, first: *mut ibv_recv_wr) -> (c_int, *mut ibv_recv_wr) {
        let mut bad = ptr::null_mut();
        // SAFETY: the SRQ is alive. The function is its provider's, and copies the list and its ranges before it
        // returns; the caller keeps them unchanged meanwhile. The memory that they name is writable and of the same PD
        // (`ranges`). It is borrowed during the call, and pinned from here on, because it is filed (see `Mr`).
        let returned = unsafe { (self.inner.post_recv)(self.inner.raw.as_ptr(), first, &raw mut bad) };
        (returned, bad)
    }
}

impl SharedReceiveQueue for Srq {
    type Mr = Mr;
    type Piece = Piece;

    fn num(&self) -> u32 {
        // SAFETY: the SRQ is alive, and nothing writes the field after its creation.
        unsafe { (*self.inner.raw.as_ptr()).handle }
    }

    fn caps(&self) -> SrqCaps {
        self.inner.caps
    }

    fn unpolled(&self) -> u32 {
        self.inner.table.slots().unpolled()
    }

    fn arm_limit(&self, limit: u32) -> Result<(), Errno> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let mask = signed(ibv_srq_attr_mask::IBV_SRQ_LIMIT.0);
        // SAFETY: the SRQ is alive, and the attributes are read during the call.
        errno::of_call(|| unsafe { ffi::ibv_modify_srq(self.inner.raw.as_ptr(), &raw mut attr, mask) })
    }

    fn limit(&self) -> Result<u32, Errno> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the SRQ is alive, and the result has a place.
        errno::of_call(|| unsafe { ffi::ibv_query_srq(self.inner.raw.as_ptr(), &raw mut attr) })?;
        Ok(attr.srq_limit)
    }

    /// # Errors
    /// The errno of the provider. After a removal of the device some providers refuse, and others accept receives that
    /// never complete.
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Mr>]>,
    {
        match self.post_one(wr_id, sges.as_ref()) {
            Ok(_) => Ok(()),
            Err(NotPosted { reason, .. }) => Err(self.error(reason)),
        }
    }

    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Mr>]>,
    {
        let posted = self.post_batch::<Sge<'a, Mr>, L>(requests.into_iter());
        posted.map_err(|Stopped { posted, reason }| BatchError { posted, error: self.error(reason) })
    }

    fn post_recv_blocks<L: Into<Parts<Piece>>>(&mut self, wr_id: u64, blocks: L) -> Result<(), Unposted<Piece>> {
        let parts = blocks.into();
        let posted = self.check_room(1).map_err(NotPosted::from).and_then(|()| self.post_one(wr_id, &parts));
        let (token, returns) = match &posted {
            Ok(token) => (*token, Returns::ByCompletion),
            Err(NotPosted { filed: Some(token), .. }) => (*token, Returns::ToPool),
            Err(NotPosted { filed: None, reason }) => {
                return Err(Unposted { error: self.error(*reason), given: Some(parts) });
            }
        };
        self.blocks.lend(token, wr_id, returns, parts);
        posted.map(drop).map_err(|refused| Unposted { error: self.error(refused.reason), given: None })
    }

    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Piece>>,
    {
        let requests: Vec<(u64, Parts<Piece>)> =
            requests.into_iter().map(|(wr_id, list)| (wr_id, list.into())).collect();
        let result = match self.check_room(requests.len()) {
            Ok(()) => self.post_batch(requests.iter().map(|(wr_id, parts)| (*wr_id, parts))),
            Err(reason) => Err(reason.into()),
        };
        let posted = match &result {
            Ok(posted) | Err(Stopped { posted, .. }) => *posted,
        };
        let is_refused = matches!(&result, Err(stopped) if !matches!(stopped.reason, PostReason::Device(_)));
        let mut requests = requests.into_iter();
        if let Some(staging) = self.staging.as_mut().filter(|_| !is_refused) {
            let tokens = staging.receives().map(|(request, _)| request.wr_id);
            for ((token, (wr_id, parts)), at) in tokens.zip(&mut requests).zip(0..) {
                let returns = if at < posted { Returns::ByCompletion } else { Returns::ToPool };
                self.blocks.lend(token, wr_id, returns, parts);
            }
        }
        result.map_err(|Stopped { posted, reason }| {
            let error = BatchError { posted, error: self.error(reason) };
            ErrorWith::new(requests.map(|(_, parts)| parts).collect(), error)
        })
    }

    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Piece>> {
        let slots = self.inner.table.slots();
        self.blocks.reclaim(completion, |token| slots.is_over(token))
    }
}

/// A receive was not posted. It has a token if the provider may have queued it.
struct NotPosted {
    reason: PostReason,
    filed: Option<u64>,
}

impl From<PostReason> for NotPosted {
    fn from(reason: PostReason) -> Self {
        NotPosted { reason, filed: None }
    }
}

impl Srq {
    /// Checks that there is room for the blocks of `count` receives.
    fn check_room(&mut self, count: usize) -> Result<(), PostReason> {
        let slots = self.inner.table.slots();
        self.blocks.check_room(count, |token| slots.is_over(token))
    }

    /// Posts a receive. Returns its token.
    fn post_one<N: Named>(&mut self, wr_id: u64, named: &[N]) -> Result<u64, NotPosted> {
        let mut one;
        let mut list;
        let (token, sg_list, num_sge) = match named {
            [one_named] => {
                one = one_named.range(self.pd, true)?;
                if one.length != 0 && self.inner.requested.max_sge == 0 {
                    return Err(PostReason::TooManyRanges { ranges: 1, max: 0 }.into());
                }
                let token = self.cursor.file(wr_id, [pinned_key::<N>(&one, false)]);
                (token, &raw mut one, count(slice::from_ref(&one), self.inner.is_iwarp))
            }
            named => {
                list = ranges(self.pd, named, self.inner.requested.max_sge, true)?;
                let token = self.cursor.file(wr_id, list.iter().map(|sge| pinned_key::<N>(sge, false)));
                (token, list.as_mut_ptr(), count(&list, self.inner.is_iwarp))
            }
        };
        let token = token.ok_or_else(|| self.full())?;
        let mut request = ibv_recv_wr { wr_id: token, next: ptr::null_mut(), sg_list, num_sge };
        let (returned, bad) = self.post_list(&raw mut request);
        match answer(returned, bad) {
            Ok(()) => Ok(token),
            Err(errno) if self.cursor.withdraw(token) => {
                Err(NotPosted { reason: PostReason::Device(errno), filed: Some(token) })
            }
            Err(_) => Ok(token),
        }
    }

    fn post_batch<R, L>(&mut self, requests: impl Iterator<Item = (u64, L)>) -> Result<usize, Stopped>
    where
        L: AsRef<[R]>,
        R: Named,
    {
        let SrqCaps { max_wr, max_sge } = self.inner.requested;
        // Dropped if a request is refused: the next batch then allocates again.
        let mut staging = self.staging.take().unwrap_or_else(|| Staging::new(max_wr, max_sge));
        let mut list = staging.begin();
        for (wr_id, named) in requests {
            let sges = ranges(self.pd, named.as_ref(), max_sge, true)?;
            let request = list.add(&sges)?;
            (request.wr_id, request.num_sge) = (wr_id, count(&sges, self.inner.is_iwarp));
        }
        let len = list.len();
        staging.set_len(len);
        if len > self.cursor.room() as usize {
            self.staging = Some(staging);
            return Err(self.full().into());
        }
        for (request, sges) in staging.receives() {
            let lkeys = sges.iter().map(|sge| pinned_key::<R>(sge, false));
            // There is room, because only this thread posts.
            request.wr_id = self.cursor.file(request.wr_id, lkeys).ok_or(PostReason::QueueFull { max: max_wr })?;
        }
        let first = staging.end(len);
        if first.is_null() {
            return Err(PostReason::EmptyBatch.into());
        }
        let (returned, bad) = self.post_list(first);
        let result = staging.posted(returned, bad).or_else(|stopped| {
            let last_first = staging.receives().skip(stopped.posted).rev();
            let withdrawn = last_first.take_while(|(request, _)| self.cursor.withdraw(request.wr_id)).count();
            stopped.before(withdrawn, len)
        });
        self.staging = Some(staging);
        result
    }
}

impl SrqInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }
}

impl SrqUse {
    /// Records that a new QP of this PD uses the SRQ and reports to the CQ.
    ///
    /// # Errors
    /// `EINVAL` for an SRQ of another PD; `EOVERFLOW` if the CQ has no room for the completions of its receives.
    pub(crate) fn attach(srq: &Srq, pd: &PdUse, cq: &Arc<CqInner>) -> Result<Self, Errno> {
        if !srq.inner.pd.is_of(pd) {
            return Err(Errno::EINVAL);
        }
        cq.cq_slots().attach_srq(&srq.inner.table)?;
        Ok(SrqUse { srq: Arc::clone(&srq.inner), cq: Arc::clone(cq), qp_num: 0 })
    }

    pub(crate) fn srq(&self) -> &SrqInner {
        &self.srq
    }

    /// Notes the number of the QP.
    pub(crate) fn of(self, qp_num: u32) -> Self {
        let mut this = self;
        this.qp_num = qp_num;
        this
    }

    /// The upper half of the tokens of the receives of the QP; `None` if receives of a destroyed one with its number may be
    /// left.
    pub(super) fn tokens(&self) -> Option<u32> {
        let table = &self.srq.table;
        (!self.cq.cq_slots().has_left(table, self.qp_num)).then(|| table.slots().queue())
    }

    /// Called before the destruction of the QP.
    pub(super) fn leaves(&self) {
        self.cq.cq_slots().leaves(&self.srq.table, self.qp_num);
    }

    /// Called for a leaked QP, which could not be destroyed. Leaks its SRQ too, with the memory of the receives in
    /// flight.
    pub(crate) fn leak(self) {
        self.srq.table.leak();
        mem::forget(self);
    }
}

impl Drop for Srq {
    /// The SRQ keeps the blocks of its receives until they can no longer be executed.
    fn drop(&mut self) {
        let blocks = mem::replace(&mut self.blocks, Lent::new(0));
        if self.inner.pd.inner().is_inherited() {
            mem::forget(blocks);
        } else if !blocks.is_empty() {
            self.inner.table.keep(blocks);
        }
    }
}

impl Drop for SrqUse {
    fn drop(&mut self) {
        if self.srq.pd.inner().is_inherited() {
            return;
        }
        drop(self.cq.cq_slots().leave_srq(Arc::clone(&self.srq.table), self.qp_num));
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if self.pd.inner().is_inherited() {
            // Nor is the table, whose drop takes locks.
            mem::forget(Arc::clone(&self.table));
            return;
        }
        // SAFETY: made by ibv_create_srq and destroyed only here; QPs hold their SRQ, so none is left. It waits at most
        // until another thread has acked an asynchronous event that it has just read. If the kernel refuses, it is
        // leaked, and the memory that its receives name with it.
        if errno::of_call(|| unsafe { ffi::ibv_destroy_srq(self.raw.as_ptr()) }).is_err() {
            self.table.leak();
        }
    }
}

impl Srq {
    /// Returns the `ibv_srq`; see [`raw`].
    ///
    /// # Safety
    /// The pointer is used only as long as `self` lives, and as [`raw`] says.
    #[must_use]
    pub unsafe fn raw_srq(&self) -> NonNull<raw::IbvSrq> {
        self.inner.raw.cast()
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq").field("num", &self.num()).field("unpolled", &self.unpolled()).finish_non_exhaustive()
    }
}
