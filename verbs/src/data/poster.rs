//! The posting side of a QP.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use cmid_proto::Errno;
use cmid_proto::datapath::{BatchError, PostCall, PostError, PostReason};

use crate::accounting::in_flight::PdWork as _;
use crate::accounting::kind::Kind;
use crate::accounting::wr_ring::Cursor;
use crate::data::QpInner;
use crate::data::staging::{Staging, Stopped};
use crate::data::wr_api::WrApi;
use crate::ffi::{ibv_recv_wr, ibv_send_wr};

/// What posts the requests of a QP: the handle without the blocks that the requests have.
pub(super) struct Poster {
    pub(super) inner: Arc<QpInner>,
    /// The name of the PD; see [`Mr::source`](crate::Mr::source).
    pub(super) pd: usize,
    pub(super) send: Cursor,
    pub(super) recv: Cursor,
    /// The extended calls for the send queue, if they are in use.
    pub(super) wr_api: Option<WrApi>,
    /// The same, if the QP is connected; `None` for a datagram QP. One check then covers both.
    pub(super) connected_api: Option<WrApi>,
    /// A copy, so that a post need not follow a pointer.
    pub(super) max_inline: u32,
    pub(super) is_datagram: bool,
    /// Whether the transport is iWARP.
    pub(super) is_iwarp: bool,
    /// Whether the peer answers no reads and atomic operations. Known after the first post.
    pub(super) refuses_reads: bool,
    /// Created by the first list of each kind. Boxes keep the handle small.
    pub(super) send_staging: Option<Box<Staging<ibv_send_wr>>>,
    pub(super) recv_staging: Option<Box<Staging<ibv_recv_wr>>>,
}

impl Poster {
    pub(super) fn new(inner: Arc<QpInner>) -> Self {
        let in_flight = inner.pd.inner().in_flight();
        let (pd, send, recv) = (inner.pd.name(), in_flight.without_ring(), in_flight.without_ring());
        // Less than requested if the provider has lowered it (`get_max_inline_data` of hns).
        let max_inline = inner.requested().max_inline.min(inner.caps.max_inline);
        let (wr_api, is_datagram) = (inner.wr_api, inner.is_datagram);
        let connected_api = wr_api.filter(|_| !is_datagram);
        let is_iwarp = inner.is_iwarp;
        Poster {
            inner,
            pd,
            send,
            recv,
            wr_api,
            connected_api,
            max_inline,
            is_datagram,
            is_iwarp,
            refuses_reads: false,
            send_staging: None,
            recv_staging: None,
        }
    }

    /// Files a work request of the send queue; see `Cursor::file`.
    pub(super) fn file_send(&mut self, wr_id: u64, lkeys: &[u32], kind: Kind) -> Result<u64, PostReason> {
        self.open_send()?;
        self.send.file(wr_id, lkeys, kind).ok_or_else(|| self.send_refusal())
    }

    /// The same with one range.
    #[inline(always)]
    pub(super) fn file_send_one(&mut self, wr_id: u64, lkey: u32, kind: Kind) -> Result<u64, PostReason> {
        let next = self.send.next();
        let token = if self.send.has_room_at(next) { next } else { self.send_room(kind)? };
        self.send.file_at(token, wr_id, lkey, kind);
        Ok(token)
    }

    /// Files a work request of the receive queue; see `Cursor::file`.
    pub(super) fn file_recv(&mut self, wr_id: u64, lkeys: &[u32]) -> Result<u64, PostReason> {
        self.open_recv();
        self.recv.file(wr_id, lkeys, Kind::RECEIVE).ok_or_else(|| self.recv_refusal())
    }

    /// The same with one range.
    #[inline(always)]
    pub(super) fn file_recv_one(&mut self, wr_id: u64, lkey: u32) -> Result<u64, PostReason> {
        let next = self.recv.next();
        let token = if self.recv.has_room_at(next) { next } else { self.recv_room()? };
        self.recv.file_at(token, wr_id, lkey, Kind::RECEIVE);
        Ok(token)
    }

    /// Creates the ring of the send queue, if there is none. Until then the cursor has no room, so no request reaches
    /// the provider before the QP is in RTS. Soft-RoCE's and soft-iWARP's libraries would queue it, report an error,
    /// and execute it later.
    ///
    /// # Errors
    /// If the QP does not send yet, or its state cannot be queried.
    pub(super) fn open_send(&mut self) -> Result<(), PostReason> {
        if self.send.is_without_ring() { self.open_first_send() } else { Ok(()) }
    }

    #[cold]
    fn open_first_send(&mut self) -> Result<(), PostReason> {
        let inner = &self.inner;
        if !inner.sends.load(Ordering::Acquire) {
            inner.learn_whether_it_sends()?;
        }
        // On iWARP it may become known later.
        self.refuses_reads = !self.is_datagram && !self.is_iwarp && inner.is_unanswered();
        inner.queues.open_send(&mut self.send, inner.pd.inner(), self.is_iwarp);
        Ok(())
    }

    /// Creates the ring of the receive queue, if there is none.
    pub(super) fn open_recv(&mut self) {
        if self.recv.is_without_ring() && self.inner.srq.is_none() {
            self.inner.queues.open_recv(&mut self.recv, self.inner.pd.inner());
        }
    }

    /// Prepares for the bind of a window. `token` is that of the bind.
    pub(super) fn add_window(&mut self, token: u64) {
        if !self.inner.has_windows.swap(true, Ordering::Relaxed) {
            // So that its receives have tokens.
            self.open_recv();
            self.inner.add_window(token);
        }
    }

    /// Returns the reason why a request of the send queue was not filed.
    #[cold]
    pub(super) fn send_refusal(&self) -> PostReason {
        PostReason::QueueFull { max: self.inner.requested().max_send_wr }
    }

    /// Returns the reason why a receive was not filed.
    #[cold]
    pub(super) fn recv_refusal(&self) -> PostReason {
        match self.inner.srq {
            Some(_) => PostReason::HasSrq,
            None => PostReason::QueueFull { max: self.inner.requested().max_recv_wr },
        }
    }

    /// Returns the error of a post.
    #[cold]
    pub(super) fn error(&self, call: PostCall, reason: PostReason) -> PostError {
        PostError::new(call, self.inner.qp_num(), reason)
    }

    /// Returns the error of a batch.
    #[cold]
    pub(super) fn stopped(&self, call: PostCall, Stopped { posted, reason }: Stopped) -> BatchError {
        BatchError { posted, error: self.error(call, reason) }
    }

    /// Returns the token of the next send; opens its queue if this is the first one.
    #[cold]
    fn send_room(&mut self, kind: Kind) -> Result<u64, PostReason> {
        self.open_send()?;
        if self.refuses_reads && kind.is_answered() {
            return Err(PostReason::NoReads);
        }
        self.send.look_for_room(self.send.next()).ok_or_else(|| self.send_refusal())
    }

    /// Ends the post of the request of the send queue that was filed last. After an error it stays in flight, because
    /// the provider may have queued it.
    #[inline(always)]
    pub(super) fn settle(&mut self, answer: Result<(), Errno>) -> Result<(), PostReason> {
        match answer {
            Ok(()) => Ok(()),
            Err(errno) => self.end_send(errno),
        }
    }

    /// As `end_sends`, for one request.
    #[cold]
    fn end_send(&mut self, errno: Errno) -> Result<(), PostReason> {
        self.end_sends(1, PostReason::Device(errno).into()).map(drop).map_err(|end| end.reason)
    }

    /// As `end_recvs`, for one receive.
    #[cold]
    pub(super) fn end_recv(&mut self, errno: Errno) -> Result<(), PostReason> {
        self.end_recvs(1, PostReason::Device(errno).into()).map(drop).map_err(|end| end.reason)
    }

    /// Ends the post of the last `count` requests of the send queue, which the provider has stopped. Withdraws those that
    /// are not known to be posted. Returns their number if all are.
    #[cold]
    pub(super) fn end_sends(&mut self, count: usize, stopped: Stopped) -> Result<usize, Stopped> {
        let withdrawn = self.inner.queues.withdraw_send(&mut self.send, count - stopped.posted);
        stopped.before(withdrawn, count)
    }

    /// The same for receives.
    #[cold]
    pub(super) fn end_recvs(&mut self, count: usize, stopped: Stopped) -> Result<usize, Stopped> {
        let withdrawn = self.inner.queues.withdraw_recv(&mut self.recv, count - stopped.posted);
        stopped.before(withdrawn, count)
    }

    /// As `send_room`, for receives.
    #[cold]
    fn recv_room(&mut self) -> Result<u64, PostReason> {
        self.open_recv();
        self.recv.look_for_room(self.recv.next()).ok_or_else(|| self.recv_refusal())
    }
}
