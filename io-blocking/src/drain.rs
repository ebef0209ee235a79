//! The drain of a QP, with a wait in poll(2).

use std::os::fd::AsFd as _;
use std::time::Duration;

use cmid_io_common::now;
use cmid_proto::datapath::{Completion, CompletionQueue, Drain, Draining, QueuePair};
use cmid_proto::{Errno, Observer, Pollable};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::connection::Connection;
use crate::driver::Blocking;
use crate::error::Error;

/// How often a CQ is looked at whose notifications belong to the readers of a shared channel.
const LOOK: Duration = Duration::from_millis(10);

impl<D: Pollable, O: Observer> Connection<D, O> {
    /// Polls the CQs of the QP until each of its work requests is polled: see [`Blocking::drain`]. Call it after
    /// [`disconnect`](Connection::disconnect) or [`teardown`](Connection::teardown).
    ///
    /// # Errors
    /// As [`Blocking::drain`].
    pub fn drain<Q: QueuePair, C: CompletionQueue>(
        &mut self,
        qp: &mut Q,
        cqs: &mut [&mut C],
        timeout: Duration,
        take: impl FnMut(Completion),
    ) -> Result<(), Error> {
        self.parts().1.drain(qp, cqs, timeout, take)
    }
}

impl<D: Pollable, O: Observer> Blocking<D, O> {
    /// Polls the CQs of a QP until each work request of the QP is polled ([`Drain`]). Waits in poll(2) between two polls; for
    /// a CQ on a shared channel, whose notifications it does not take, 10 ms at a time. `cqs` are those of the QP, or the one
    /// that is both. `take` gets each completion, also those of other QPs on them. Reads no events of ids.
    ///
    /// # Errors
    /// [`Error::Drain`], after `timeout` with the number of requests that are left; [`Error::Cancelled`]; [`Error::Wait`] with
    /// the errno of poll(2).
    pub fn drain<Q: QueuePair, C: CompletionQueue>(
        &mut self,
        qp: &mut Q,
        cqs: &mut [&mut C],
        timeout: Duration,
        mut take: impl FnMut(Completion),
    ) -> Result<(), Error> {
        let end = now().after(timeout);
        let mut drain = Drain::until(end);
        while drain.poll(now(), qp, cqs, &mut take).map_err(Error::Drain)? == Draining::Waits {
            match notified(cqs).map_err(Error::Wait)? {
                Notified::Already => {}
                Notified::Own => self.sleep_on(cqs, end.since(now()))?,
                Notified::Shared => self.sleep_on::<C>(&[], end.since(now()).min(LOOK))?,
            }
        }
        Ok(())
    }

    /// Sleeps until one of the CQs has a notification, or a cancel.
    fn sleep_on<C: CompletionQueue>(&self, cqs: &[&mut C], at_most: Duration) -> Result<(), Error> {
        let fds = cqs.iter().map(|cq| cq.fd());
        let all = [self.canceller().as_fd()].into_iter().chain(fds);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, Timespec::try_from(at_most).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::Wait(Errno(error.raw_os_error()))),
        }
        let is_cancelled = polled.first().is_some_and(|fd| !fd.revents().is_empty());
        if is_cancelled { Err(Error::Cancelled { during: "drain" }) } else { Ok(()) }
    }
}

/// Whose the notifications of some CQs are.
enum Notified {
    /// There was one: the CQs are polled again.
    Already,
    /// Those of their own channels: none is there.
    Own,
    /// A channel is shared.
    Shared,
}

/// Takes the notifications of CQs.
fn notified<C: CompletionQueue>(cqs: &[&mut C]) -> Result<Notified, Errno> {
    let mut found = Notified::Own;
    for cq in cqs {
        match cq.take_notifications() {
            Ok(0) => {}
            Ok(_) => return Ok(Notified::Already),
            Err(Errno::EINVAL) => found = Notified::Shared,
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}
