//! The traits of completion queues, completion channels and asynchronous events.

#[cfg(unix)]
use std::os::fd::BorrowedFd;

use super::{AsyncEvent, Completion, CreateError};
use crate::datapath::CqRoom;
use crate::errno::Errno;

/// A completion queue with a completion channel. One thread at a time polls it.
///
/// ```
/// use cmid_proto::datapath::{Access, Completion, SendWr, WcOpcode, prelude::*};
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
/// # let mr = there.pd.register(vec![0; 64], Access::LOCAL_WRITE)?;
/// # there.qp.post_recv(7, mr.sge(0..64))?;
/// // Nothing has completed: the queue is armed, and its descriptor becomes readable with the next completion.
/// let mut some = [Completion::default(); 16];
/// assert_eq!(there.cq.poll_or_arm(&mut some)?, 0);
///
/// let sent = here.pd.register(b"hello".to_vec(), Access::empty())?;
/// here.qp.post_send(SendWr::send(1, sent.sge(0..5)))?;
/// fabric.advance_by(std::time::Duration::from_millis(1)); // a program waits for `there.cq.fd()` here
///
/// while let polled @ 1.. = there.cq.poll_or_arm(&mut some)? {
///     for done in &some[..polled] {
///         assert!(done.is_success(), "{}", done.status);
///         assert_eq!((done.wr_id, done.opcode, done.byte_len), (7, WcOpcode::RECV, 5));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_cq")]
pub trait CompletionQueue: Send {
    /// Takes completions, oldest first, as many as are available and fit, and returns their number (ibv_poll_cq(3)).
    /// Their work requests do not pin memory any more.
    ///
    /// Completions of a destroyed QP may be lost.
    ///
    /// # Errors
    /// The errno of the device. Earlier completions are not lost.
    #[doc(alias("ibv_poll_cq", "rdma_get_send_comp", "rdma_get_recv_comp"))]
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno>;

    /// Takes the oldest completion. For much traffic [`CompletionQueue::poll`] with a larger slice costs less.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    #[doc(alias = "ibv_poll_cq")]
    fn poll_one(&mut self) -> Result<Option<Completion>, Errno> {
        let mut one = [Completion::default()];
        let polled = self.poll(&mut one)?;
        let [completion] = one;
        Ok((polled == 1).then_some(completion))
    }

    /// Takes completions as [`CompletionQueue::poll`] does. If there are none, takes the notifications of its own channel, and
    /// requests one for the next completion. So after 0 the descriptor becomes readable at the next completion, in a loop
    /// that reports edges too; after another number, call it again before a wait.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`], [`CompletionQueue::arm`] and [`CompletionQueue::take_notifications`]: `EINVAL` for a
    /// CQ on a shared channel.
    fn poll_or_arm(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        let polled = self.poll(completions)?;
        if polled > 0 {
            return Ok(polled);
        }
        self.take_notifications()?;
        self.arm()?;
        // Earlier completions cause no notification.
        self.poll(completions)
    }

    /// Waits for completions, and takes them as [`CompletionQueue::poll`] does: for a thread that serves this CQ and nothing
    /// else. It sleeps in a read of the completion channel (ibv_get_cq_event(3)), which is one system call less than a wait for
    /// the descriptor. Returns 0 only if no completion can come: nothing is in flight ([`CompletionQueue::is_idle`]), also of
    /// the SRQs of its QPs, or there is no room for one.
    ///
    /// It has no time limit, and sees no event: a peer that disconnects does not end it. The thread of the driver does, by the
    /// disconnect of the id, which flushes what is posted. So keep a receive posted at all times: one that is posted after the
    /// flush may never complete (soft-RoCE). No disconnect flushes the receives of an SRQ: there a send that is posted after
    /// it ends the wait. An unsignaled request ends no wait, nor does the destruction of a QP.
    ///
    /// # Errors
    /// `EINTR` after a signal, as read(2). `EINVAL` for a CQ on a shared channel. `EIO` on a device that is gone. Otherwise as
    /// [`CompletionQueue::poll_or_arm`]. No completion is lost.
    #[cfg(unix)]
    #[doc(alias("ibv_get_cq_event", "rdma_get_send_comp", "rdma_get_recv_comp"))]
    fn wait(&mut self, completions: &mut [Completion]) -> Result<usize, Errno>;

    /// Returns its number, by which an [`AsyncEvent`] names it.
    fn num(&self) -> u32;

    /// Returns its depth, and the number of work requests of the QPs that use it. The depth is what was requested, or
    /// less if the device has less. Entries that the device adds are not used, because some devices need them.
    fn room(&self) -> CqRoom;

    /// Changes its depth to `depth` completions (ibv_resize_cq(3)). The completions in it stay.
    ///
    /// # Errors
    /// Nothing has changed then. [`CreateReason::Reserved`](super::CreateReason::Reserved) for fewer completions than the
    /// work requests of the queues that use the CQ, [`Zero`](super::CreateReason::Zero) for 0,
    /// [`TooLarge`](super::CreateReason::TooLarge) above the device's maximum. `EOPNOTSUPP` if the device or its library
    /// cannot, such as soft-iWARP; `ENOMEM`; `EIO` or `ENODEV` after a removal of the device.
    #[doc(alias = "ibv_resize_cq")]
    fn resize(&mut self, depth: u32) -> Result<(), CreateError>;

    /// Whether every work request of its queues has ended, and its completion was polled. Receives of shared receive
    /// queues do not count. An unsignaled request ends as [`SendWr`](super::SendWr) says.
    ///
    /// After a disconnect it tells whether the device has flushed all work requests. It may never become true, if an
    /// unsignaled request has succeeded and no other has followed, and for a receive that is posted after the end on a
    /// device that does not look at it (soft-RoCE). So wait for it with a time limit.
    fn is_idle(&self) -> bool;

    /// Requests one notification, at the next completion (ibv_req_notify_cq(3)). Poll once more after this call,
    /// because earlier completions cause no notification.
    ///
    /// # Errors
    /// The errno of the device.
    #[doc(alias = "ibv_req_notify_cq")]
    fn arm(&self) -> Result<(), Errno>;

    /// Requests one notification, at the next solicited completion or failure. A flushed receive notifies on some devices only:
    /// with soft-RoCE on Linux 6.1, not on 6.12.
    ///
    /// # Errors
    /// The errno of the device.
    #[doc(alias = "ibv_req_notify_cq")]
    fn arm_solicited(&self) -> Result<(), Errno>;

    /// Requests fewer notifications (ibv_modify_cq(3) with `IBV_CQ_ATTR_MODERATE`): an armed notification comes after
    /// `count` completions, or `period_us` microseconds after the first one. 0 and 0 end the moderation. The device may
    /// round the values.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the device or its library does not support it, such as soft-RoCE; otherwise the errno of the
    /// device.
    #[doc(alias = "ibv_modify_cq")]
    fn moderate(&self, count: u16, period_us: u16) -> Result<(), Errno>;

    /// Returns the descriptor of its completion channel, which may be shared: readable while there are notifications.
    /// It is non-blocking, but after a [`wait`](CompletionQueue::wait). Only for poll(2) and the like: the destruction of the CQ
    /// waits for ever for the ack of what read(2) takes.
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes notifications, acks them, and returns their number (ibv_get_cq_event(3)): 0 only if there is none. Never
    /// waits. May leave some for the next call.
    ///
    /// # Errors
    /// `EINVAL` for a CQ on a shared channel: [`CompletionChannel::next_notification`] takes its notifications. Else
    /// the errno of the device, never `EAGAIN`.
    #[doc(alias("ibv_get_cq_event", "ibv_ack_cq_events"))]
    fn take_notifications(&self) -> Result<u32, Errno>;
}

/// A completion channel that several CQs share. Any thread may take notifications from it. Each CQ keeps its channel
/// open.
#[doc(alias("ibv_comp_channel", "ibv_destroy_comp_channel"))]
pub trait CompletionChannel: Send + Sync {
    /// Returns the descriptor: readable while there are notifications. It is non-blocking. Only for poll(2) and the like, as
    /// [`CompletionQueue::fd`].
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes the oldest notification, acks it, and returns the number of its CQ ([`CompletionQueue::num`]); `None` if
    /// there is none (ibv_get_cq_event(3)). Never waits. The notifications of a dropped CQ are discarded.
    ///
    /// # Errors
    /// The errno of the device, never `EAGAIN`.
    #[doc(alias("ibv_get_cq_event", "ibv_ack_cq_events"))]
    fn next_notification(&self) -> Result<Option<u32>, Errno>;
}

/// The asynchronous events of a device (`ibv_context.async_fd`). No completion and no event channel reports them.
///
/// An event is acknowledged when it is read, so an event never delays the destruction of its object.
pub trait AsyncEventQueue: Send {
    /// Returns the descriptor: readable while there are events. It is non-blocking. Only for poll(2) and the like, as
    /// [`CompletionQueue::fd`].
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns the next event (ibv_get_async_event(3)); `None` if there is none. Never waits.
    ///
    /// # Errors
    /// The errno of the device, `EIO` after its removal; never `EAGAIN`.
    #[doc(alias("ibv_get_async_event", "ibv_ack_async_event"))]
    fn next_event(&mut self) -> Result<Option<AsyncEvent>, Errno>;
}
