//! The trait of a QP.

use core::ops::Range;

use super::{Access, BatchError, Caps, MemoryRegion, ModifyError, PostError, QpAttrs, QpState, SendWr, Sge, Unpolled};
#[cfg(feature = "std")]
use super::{Completion, Part, Parts, Piece, Unposted, UnpostedBatch};
#[cfg(doc)]
use super::{ModifyReason, PostReason};
use crate::errno::Errno;

/// The handle of a QP. One thread at a time posts to it.
///
/// The QP is destroyed when it is detached from its id and the handle is dropped. Each post checks its ranges: each is
/// inside its MR, the MR is of the PD of the QP, and an MR that the device or its library writes to has
/// [`Access::LOCAL_WRITE`]. The device checks the rest.
///
/// A message, and a write into the memory of the peer:
///
/// ```
/// use cmid_proto::datapath::{Access, Remote, SendWr, prelude::*};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use cmid_proto::datapath::QpParts;
/// # use cmid_proto::handshake::{Connected, Dial, DialTo, Incoming, Serve};
/// # use cmid_proto::{Acks, ConnParam, Drive, Limits, PortSpace, Time};
/// # use cmid_sim::{Config, Fabric, SimDevice};
/// # let fabric = Fabric::new(Config::default());
/// # let host = fabric.host(&["10.0.0.1".parse()?, "10.0.0.2".parse()?]);
/// # let mut drive = Drive::new(host.device(), Limits::default());
/// # let channel = drive.open_channel(Acks::OnDelivery)?;
/// # let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
/// # drive.bind(listener, "10.0.0.2:7471".parse()?)?;
/// # drive.listen(listener, 8)?;
/// # let mut dial = Dial::start(&mut drive, Some(channel), &DialTo::new("10.0.0.2:7471".parse()?), Time::NEVER)?;
/// # let (mut serve, mut client, mut server) = (None::<Serve<QpParts<SimDevice>>>, None, None);
/// # while client.is_none() || server.is_none() {
/// #     drive.readable_all();
/// #     let _next = drive.run(64);
/// #     let Some(event) = drive.next_event(channel) else {
/// #         fabric.advance_to(fabric.next_due().ok_or("nothing is due")?);
/// #         continue;
/// #     };
/// #     if event.id == dial.id() {
/// #         client = dial.handle(&mut drive, event, |drive, id| drive.qp(id).attach())?;
/// #     } else if let Some(serve) = &mut serve {
/// #         server = serve.handle(&mut drive, event)?;
/// #     } else {
/// #         let incoming = Incoming::new(&mut drive, event).map_err(|event| event.to_string())?;
/// #         let accepted =
/// #             incoming.accept(&mut drive, ConnParam::default(), &[], Time::NEVER, |drive, id| drive.qp(id).attach());
/// #         serve = Some(accepted?);
/// #     }
/// # }
/// # let Some((Connected { attached: mut here, .. }, Connected { attached: mut there, .. })) = client.zip(server) else {
/// #     return Err("not connected".into());
/// # };
/// // `here` and `there` are the two ends of a connection, on the simulator.
/// let mr = here.pd.register(b"hello".to_vec(), Access::empty())?;
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let target = there.pd.register(vec![0; 64], rights)?;
/// there.qp.post_recv(1, target.sge(0..32))?;
///
/// here.qp.post_send(SendWr::send(2, mr.sge(0..5)).unsignaled())?;
/// let remote = Remote { addr: target.addr() + 32, rkey: target.rkey() }; // a peer is told these in a message
/// here.qp.post_send(SendWr::write(3, mr.sge(0..5), remote))?;
/// fabric.advance_by(std::time::Duration::from_millis(1));
///
/// let done = here.cq.poll_one()?.ok_or("not complete")?;
/// assert!(done.is_success() && done.wr_id == 3); // the send before it is complete too
/// let mut bytes = [0; 37];
/// target.read(0, &mut bytes)?;
/// assert_eq!((&bytes[..5], &bytes[32..]), (&b"hello"[..], &b"hello"[..]));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_qp")]
pub trait QueuePair: Send {
    /// Memory regions.
    type Mr: MemoryRegion;
    /// Memory windows.
    type Mw;
    /// Address handles.
    type Ah;
    /// The memory of blocks.
    #[cfg(feature = "std")]
    type Piece: Piece;

    /// Returns its number.
    fn num(&self) -> u32;

    /// Returns its state (ibv_query_qp(3)). A system call on hardware.
    ///
    /// # Errors
    /// The errno of the device.
    #[doc(alias = "ibv_query_qp")]
    fn state(&self) -> Result<QpState, Errno>;

    /// Changes attributes of a connected QP (ibv_modify_qp(3)): all of them or none. Before the connect or accept they are
    /// kept, and are set when the connection manager moves the QP to RTR and RTS: so call it in the closure of
    /// [`Drive::attach_qp`](crate::Drive::attach_qp). In RTS only [`QpAttrs::min_rnr_timer`] can be changed, and is at once.
    ///
    /// # Errors
    /// [`ModifyReason::TooLarge`], [`TooLate`](ModifyReason::TooLate) in RTR and RTS, [`Ended`](ModifyReason::Ended) after
    /// that; [`IsDatagram`](ModifyReason::IsDatagram), [`NotOfTransport`](ModifyReason::NotOfTransport) on iWARP. On a device
    /// over librdmacm [`ByLibrary`](ModifyReason::ByLibrary) before RTS. The errno of the device.
    #[doc(alias = "ibv_modify_qp")]
    fn modify(&mut self, attrs: QpAttrs) -> Result<(), ModifyError>;

    /// Returns the attributes that [`QueuePair::modify`] changes, as the device has them now (ibv_query_qp(3)): before RTR they
    /// have no meaning. A system call on hardware.
    ///
    /// # Errors
    /// The errno of the device.
    #[doc(alias = "ibv_query_qp")]
    fn attrs(&self) -> Result<QpAttrs, Errno>;

    /// Returns its capacities, which the provider may have rounded up. The queues accept only as many work requests as
    /// were requested.
    fn caps(&self) -> Caps;

    /// Returns the number of its work requests that are posted and not over. Costs no system call.
    ///
    /// A request whose post has failed with [`PostReason::Device`] counts too. A poll on another thread may end requests
    /// meanwhile.
    fn unpolled(&self) -> Unpolled;

    /// Posts a request to the send queue (ibv_post_send(3)).
    ///
    /// Sends and writes of at most [`Caps::max_inline`] bytes are inlined.
    ///
    /// # Errors
    /// The request is not posted, for one of the [reasons](PostReason): a range beyond the end, an MR or an address
    /// handle of another PD, an MR without a valid registration, a target without [`Access::LOCAL_WRITE`], more ranges
    /// than the QP permits (on iWARP more than one of a read), a datagram on a connected QP or the reverse, a read or an
    /// atomic operation if the peer answers none (on iWARP from ESTABLISHED on), and before the QP is in [`QpState::RTS`].
    /// [`PostReason::NotOfTransport`] for what the transport lacks: on iWARP immediate data, atomic operations and empty reads.
    /// [`PostReason::QueueFull`] if there is no room. A request occupies the queue until its completion is polled; an
    /// unsignaled one, until the completion of a later request is polled. On iWARP completions come out of order, so the
    /// queue may be full although only its oldest request is not complete.
    ///
    /// After [`PostReason::Device`] the device or its library may have queued the request, and may execute it later. So
    /// the request occupies the queue and pins its memory like an unsignaled one. Its completion is not returned, unless a poll
    /// of another thread is about to return it. If one has returned it already, the post has succeeded.
    #[doc(alias("ibv_post_send", "rdma_post_send", "rdma_post_write", "rdma_post_read", "rdma_post_ud_send"))]
    #[doc(alias("rdma_post_sendv", "rdma_post_writev", "rdma_post_readv"))]
    fn post_send<'a, L>(&mut self, request: SendWr<'a, L, Self::Ah>) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts requests to the send queue in order, with one doorbell, and returns their number. If the iterator or a
    /// check fails, none is posted.
    ///
    /// The iterator runs while the provider holds the lock of the send queue, which its other calls may take. So it
    /// must not call the data path, nor destroy an object of it, nor wait for a thread that does: the calls may wait
    /// for each other for ever. It may panic; then none is posted.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`PostReason::EmptyBatch`]. [`BatchError::posted`] is the number of requests that
    /// are posted nevertheless. Those after them are refused; after an error of the device they may be executed, as
    /// with [`QueuePair::post_send`].
    #[doc(alias("ibv_post_send", "ibv_wr_start", "ibv_wr_complete"))]
    fn post_sends<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = SendWr<'a, L, Self::Ah>>,
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a,
        Self::Ah: 'a;

    /// Posts ranges to receive a message, or a datagram after its [`GRH_LEN`](super::GRH_LEN) bytes
    /// (ibv_post_recv(3)).
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`PostReason::HasSrq`].
    #[doc(alias("ibv_post_recv", "rdma_post_recv", "rdma_post_recvv"))]
    fn post_recv<'a, L>(&mut self, wr_id: u64, sges: L) -> Result<(), PostError>
    where
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts receives in order, with one doorbell, and returns their number.
    ///
    /// # Errors
    /// As [`QueuePair::post_sends`].
    #[doc(alias = "ibv_post_recv")]
    fn post_recvs<'a, L, I>(&mut self, requests: I) -> Result<usize, BatchError>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: AsRef<[Sge<'a, Self::Mr>]>,
        Self::Mr: 'a;

    /// Posts the bind of a window to a range of `mr`, for the peer of this QP (`IBV_WR_BIND_MW`). It is effective when
    /// the completion is polled. The MR needs [`Access::MW_BIND`], and [`Access::LOCAL_WRITE`] if `access` has a right
    /// to write. The key of the window changes. Invalidate a bound window first; otherwise the completion is an error.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`PostReason::OtherPd`] also for the window; [`PostReason::LacksRight`] of the MR;
    /// [`PostReason::NotOfWindow`] if `access` has other bits than the three rights of a peer; [`PostReason::TooManyBinds`].
    #[doc(alias("ibv_bind_mw", "IBV_WR_BIND_MW"))]
    fn post_bind(
        &mut self,
        wr_id: u64,
        window: &mut Self::Mw,
        mr: &Self::Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), PostError>;

    /// Posts the invalidation of a window (`IBV_WR_LOCAL_INV`). When the completion is polled, the peer has no access.
    /// Deallocate a window that the peer may invalidate ([`SendOp::SendInvalidate`](super::SendOp::SendInvalidate))
    /// instead: the kernel's soft-RoCE fails on the second invalidation (`rxe_do_invalidate_mw`).
    ///
    /// # Errors
    /// As [`QueuePair::post_send`]; [`PostReason::NotBound`] if the last bind of the window was posted to another QP or has failed at
    /// its post, if an invalidation was posted since, or if a polled receive has told that the peer invalidated it.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    fn post_invalidate(&mut self, wr_id: u64, window: &mut Self::Mw) -> Result<(), PostError>;

    /// Posts a request of blocks to the send queue: a [`Block`](super::Block), an `Arc` of one, a [`Part`](super::Part)
    /// or several. They move into the request. [`QueuePair::reclaim`] returns them after its completion.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], with the blocks. [`PostReason::SharedBlock`] for a read or an atomic operation into a
    /// shared block. [`PostReason::NotReclaimed`].
    #[cfg(feature = "std")]
    fn post_send_blocks<L: Into<Parts<Self::Piece>>>(
        &mut self,
        request: SendWr<'_, L, Self::Ah>,
    ) -> Result<(), Unposted<Self::Piece>>;

    /// Posts requests of blocks to the send queue in order, with one doorbell, and returns their number. The iterator runs as
    /// that of [`QueuePair::post_sends`].
    ///
    /// # Errors
    /// As [`QueuePair::post_sends`] and [`QueuePair::post_send_blocks`], with the blocks of the requests that were not
    /// posted and that the device cannot have ([`Unposted`]).
    #[cfg(feature = "std")]
    fn post_sends_blocks<'a, L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Self::Piece>>
    where
        I: IntoIterator<Item = SendWr<'a, L, Self::Ah>>,
        L: Into<Parts<Self::Piece>>,
        Self::Ah: 'a;

    /// Posts blocks to receive a message. They move into the receive. [`QueuePair::reclaim`] returns them after its
    /// completion.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`], with the blocks. [`PostReason::SharedBlock`], [`PostReason::NotReclaimed`].
    #[cfg(feature = "std")]
    fn post_recv_blocks<L: Into<Parts<Self::Piece>>>(
        &mut self,
        wr_id: u64,
        blocks: L,
    ) -> Result<(), Unposted<Self::Piece>>;

    /// Posts receives of blocks in order, with one doorbell, and returns their number.
    ///
    /// # Errors
    /// As [`QueuePair::post_recvs`] and [`QueuePair::post_recv_blocks`], with the blocks.
    #[cfg(feature = "std")]
    fn post_recvs_blocks<L, I>(&mut self, requests: I) -> Result<usize, UnpostedBatch<Self::Piece>>
    where
        I: IntoIterator<Item = (u64, L)>,
        L: Into<Parts<Self::Piece>>;

    /// Posts the bind of a window to a part of a block, for the peer of this QP, as [`QueuePair::post_bind`] does to an MR.
    /// The block moves into the window: while the peer may write, nobody else has it.
    /// [`MemoryWindow::reclaim`](super::MemoryWindow::reclaim) returns it after the window is invalidated. The pool needs
    /// [`Access::MW_BIND`].
    ///
    /// # Errors
    /// As [`QueuePair::post_bind`], with the block; [`PostReason::SharedBlock`] for a right to write to a shared block.
    #[cfg(feature = "std")]
    fn post_bind_block<L: Into<Part<Self::Piece>>>(
        &mut self,
        wr_id: u64,
        window: &mut Self::Mw,
        part: L,
        access: Access,
    ) -> Result<(), Unposted<Self::Piece>>;

    /// Returns the blocks of the request of a polled completion of this QP; `None` if the request has none, or if they
    /// were returned. Requests in flight with the same `wr_id` come back in the order of their posts.
    ///
    /// The blocks of an unsignaled request that has not failed return to their pools, with the next reclaim of a later
    /// request. The blocks of a request that never completes return when the QP is destroyed and its CQs are polled
    /// empty or dropped.
    #[cfg(feature = "std")]
    fn reclaim(&mut self, completion: &Completion) -> Option<Parts<Self::Piece>>;
}
