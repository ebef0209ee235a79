//! The driver: a [`Drive`] and the waiting.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cmid_proto::{Drive, Errno, IdKey, Limits, Pollable, Rest, Time, Verb, Watched};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::cancel::Canceller;
use crate::clock::now;
use crate::error::Error;
use crate::poller::Channels;

/// Events read off the channels in one turn.
const BUDGET: usize = 256;

/// cmid with poll(2): what [`Connection`](crate::Connection) and [`Listener`](crate::Listener) are made of, for those
/// who want their own face on it.
#[derive(Debug)]
pub struct Blocking<D> {
    drive: Drive<Watched<D, Channels>>,
    canceller: Canceller,
}

impl<D: Pollable> Blocking<D> {
    /// An empty driver on a device.
    #[must_use]
    pub fn new(device: D, limits: Limits, canceller: Canceller) -> Self {
        Blocking { drive: Drive::new(Watched::new(device, Channels::default()), limits), canceller }
    }

    /// The same driver, ended by another canceller.
    pub(crate) fn with_canceller(self, canceller: Canceller) -> Self {
        Blocking { canceller, ..self }
    }

    /// The requests, the events and the core, at the present time.
    pub fn drive(&mut self) -> &mut Drive<Watched<D, Channels>> {
        self.drive.set_now(now());
        &mut self.drive
    }

    /// The core, the device: what needs no time.
    pub(crate) fn view(&self) -> &Drive<Watched<D, Channels>> {
        &self.drive
    }

    pub(crate) fn canceller(&self) -> &Canceller {
        &self.canceller
    }

    /// Does what there is to do and waits until the application has something to look at, for at most `at_most`.
    /// May return early, with nothing to look at.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; what poll(2) failed with.
    pub fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.wait_with(None, at_most).map(drop)
    }

    /// As [`wait`](Blocking::wait), and also until a descriptor of the user's own (a CQ's) is readable: then it is true.
    ///
    /// # Errors
    /// `ECANCELED` once the canceller has cancelled; what poll(2) failed with.
    pub fn wait_with(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> Result<bool, Errno> {
        let end = at_most.map_or(Time::NEVER, |span| now().after(span));
        loop {
            let due = match self.drive().settle(BUDGET) {
                Rest::Look => return Ok(false),
                Rest::More => continue,
                Rest::Until(due) => due.unwrap_or(Time::NEVER).min(end),
            };
            let present = now();
            let readable = self.sleep(also, (due != Time::NEVER).then(|| due.since(present)))?;
            if readable || present >= end {
                return Ok(readable);
            }
        }
    }

    /// Synchronous mode: waits until the request on an id that was made last has ended.
    pub(crate) fn finish(&mut self, id: IdKey, during: Verb) -> Result<(), Error> {
        loop {
            match self.drive().core().sync_result(id) {
                Some(Ok(())) => return Ok(()),
                Some(Err(errno)) => {
                    return Err(match self.drive.core().sync_event(id) {
                        Some(event) => Error::Ended { during, errno, event: Box::new(event) },
                        None => Error::TimedOut { during: during.name() },
                    });
                }
                None => self.wait(None).map_err(|errno| wait_error(errno, during.name()))?,
            }
        }
    }

    /// Whether the user's own descriptor is readable.
    fn sleep(&mut self, also: Option<BorrowedFd<'_>>, at_most: Option<Duration>) -> Result<bool, Errno> {
        let timeout = at_most.map(|span| Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        let device = self.drive.device();
        let channels = device.poller().keys().iter().filter_map(|&key| Some((key, device.fd(key)?)));
        let (keys, fds): (Vec<_>, Vec<_>) = channels.unzip();
        let all = [self.canceller.as_fd()].into_iter().chain(fds).chain(also);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(Errno(error.raw_os_error())),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let cancelled = ready.next() == Some(true);
        let readable: Vec<_> = keys.into_iter().zip(ready.by_ref()).filter(|&(_, ready)| ready).collect();
        let also = ready.next() == Some(true);
        for (channel, _) in readable {
            self.drive.readable(channel);
        }
        if cancelled { Err(Errno::ECANCELED) } else { Ok(also) }
    }
}

pub(crate) fn wait_error(errno: Errno, during: &'static str) -> Error {
    if errno == Errno::ECANCELED { Error::Cancelled { during } } else { Error::Wait(errno) }
}
