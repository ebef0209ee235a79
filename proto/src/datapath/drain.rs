//! The orderly end of a QP's work: polls until nothing of the QP is left.

use super::{Completion, CompletionQueue, PostReason, QpState, QueuePair, SendWr, Sge, Unpolled};
use crate::errno::Errno;
use crate::time::Time;

/// The number of completions that one poll takes.
const BATCH: usize = 16;

/// Polls the CQs of a QP until each of its work requests is polled, or a deadline has passed. It follows the disconnect of
/// the id, or [`DataPath::destroy_qp`](super::DataPath::destroy_qp) while the handle of the QP exists: the QP is in its
/// error state, and nothing is posted any more. After it the memory can be deregistered.
///
/// It never waits. [`Drain::poll`] does what can be done now; between two calls the program waits for a notification of the
/// CQs, with its driver or by [`CompletionQueue::fd`]:
///
/// ```
/// # use cmid_proto::datapath::{CompletionQueue, Drain, DrainError, Draining, QueuePair};
/// # use cmid_proto::Time;
/// # fn end<Q: QueuePair, C: CompletionQueue>(
/// #     deadline: Time, now: impl Fn() -> Time, qp: &mut Q, cq: &mut C, wait_for_notification: impl Fn(&C, Time),
/// # ) -> Result<(), DrainError> {
/// let mut drain = Drain::until(deadline);
/// while drain.poll(now(), qp, &mut [&mut *cq], |completion| println!("{completion:?}"))? == Draining::Waits {
///     wait_for_notification(cq, deadline); // and takes the notifications
/// }
/// # Ok(())
/// # }
/// ```
///
/// An unsignaled request that has succeeded ends with the completion of a later one. So where requests of the send queue are
/// left and the CQs are empty, it posts a send without bytes (`ib_drain_sq` of the kernel does so too), which is flushed
/// behind them. This needs room for one request in the send queue. It does not help a datagram QP, which has no peer. On iWARP
/// each request ends with its own completion.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    deadline: Time,
    is_begun: bool,
    is_marked: bool,
}

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draining {
    /// Every work request of the QP is polled.
    Over,
    /// Some are left. The CQs are armed: a notification comes with the next completion.
    Waits,
}

/// The QP is not drained.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The QP still works: its id is to be disconnected first.
    #[error("the QP is in {0}: disconnect first")]
    NotEnded(QpState),
    /// The deadline has passed. What is left pins its memory until the QP is destroyed and its CQs are polled empty.
    #[error("timed out: {0} are left")]
    TimedOut(Unpolled),
    /// The errno of an arm or a poll.
    #[error("{0}")]
    Device(Errno),
}

impl DrainError {
    /// Returns the errno that fits: `ETIMEDOUT` after the deadline.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            DrainError::NotEnded(_) => Errno::EINVAL,
            DrainError::TimedOut(_) => Errno::ETIMEDOUT,
            DrainError::Device(errno) => errno,
        }
    }
}

impl From<DrainError> for Errno {
    fn from(error: DrainError) -> Self {
        error.errno()
    }
}

impl Drain {
    /// The `wr_id` of the send that it posts. Its completion is not passed on, so the QP has no request of this number.
    pub const MARK: u64 = u64::MAX;

    /// Begins. The deadline is on the clock of [`Drain::poll`]; [`Time::NEVER`] for none.
    #[must_use]
    pub const fn until(deadline: Time) -> Self {
        Drain { deadline, is_begun: false, is_marked: false }
    }

    /// Posts the send without bytes, [`Drain::MARK`], for a loop of one's own. Returns false if there is no room yet. Another
    /// refusal stays one: what is left then ends at the deadline.
    pub fn mark<Q: QueuePair>(qp: &mut Q) -> bool {
        let nothing: [Sge<'_, Q::Mr>; 0] = [];
        let posted = qp.post_send(SendWr::send(Drain::MARK, nothing));
        !posted.is_err_and(|error| matches!(error.reason(), PostReason::QueueFull { .. }))
    }

    /// Arms the CQs, and polls what is in them. `cqs` are those of the QP, or the one that is both. `take` gets each
    /// completion, also those of other QPs on these CQs. Polls at most as many completions as the CQs have room for.
    ///
    /// # Errors
    /// [`DrainError`]. Completions that were polled before have been passed on.
    pub fn poll<Q: QueuePair, C: CompletionQueue>(
        &mut self,
        now: Time,
        qp: &mut Q,
        cqs: &mut [&mut C],
        mut take: impl FnMut(Completion),
    ) -> Result<Draining, DrainError> {
        if !self.is_begun {
            check_ended(qp)?;
            self.is_begun = true;
        }
        loop {
            for cq in &mut *cqs {
                cq.arm().map_err(DrainError::Device)?;
                empty(qp.num(), *cq, &mut take).map_err(DrainError::Device)?;
            }
            let left = qp.unpolled();
            if left.is_none() {
                return Ok(Draining::Over);
            }
            if self.deadline.has_passed(now) {
                return Err(DrainError::TimedOut(left));
            }
            if self.is_marked || left.sends == 0 {
                return Ok(Draining::Waits);
            }
            self.is_marked = Drain::mark(qp);
            if !self.is_marked {
                return Ok(Draining::Waits);
            }
        }
    }
}

/// Polls what is in a CQ. What comes after the arm causes a notification, so it may be left. Leaves out the last request,
/// also that of a drain which was dropped.
fn empty<C: CompletionQueue>(num: u32, cq: &mut C, take: &mut impl FnMut(Completion)) -> Result<(), Errno> {
    let mut batch = [Completion::default(); BATCH];
    let mut room = cq.room().depth();
    loop {
        let polled = cq.poll(&mut batch)?;
        for completion in batch.iter().take(polled) {
            if completion.wr_id != Drain::MARK || completion.qp_num != num {
                take(*completion);
            }
        }
        room = room.saturating_sub(u32::try_from(polled).unwrap_or(u32::MAX));
        if polled == 0 || room == 0 {
            return Ok(());
        }
    }
}

/// A QP before its error state would be polled until the deadline in vain. Soft-iWARP tells no state before Linux 6.8, and
/// a device that is gone none at all.
fn check_ended<Q: QueuePair>(qp: &Q) -> Result<(), DrainError> {
    match qp.state() {
        Ok(state @ (QpState::INIT | QpState::RTR | QpState::RTS)) => Err(DrainError::NotEnded(state)),
        Ok(_) | Err(_) => Ok(()),
    }
}
