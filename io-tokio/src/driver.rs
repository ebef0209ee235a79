//! The driver: a [`Drive`] and its waits in the runtime.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use cmid_proto::{ChannelKey, Drive, Errno, Limits, Next, Observer, Pollable, Poller, Time};
use tokio::task::yield_now;

use crate::clock::{self, Timer};
use crate::watch::Watch;

/// Events read from the channels per turn.
const BUDGET: usize = 256;

/// cmid in a runtime of tokio, with any number of ids and channels: for one task that serves many connections with few
/// descriptors. [`Connection`](crate::Connection) and [`Listener`](crate::Listener) have one each.
///
/// `Send` if the device is, and not `Sync`. It is registered in the runtime that waits first.
#[derive(Debug)]
pub struct Tokio<D: Pollable, O: Observer = ()> {
    pub(crate) drive: Drive<D, Channels, O>,
    /// Whether a channel was readable since the last turn.
    is_unread: bool,
    pub(crate) timer: Timer,
}

impl<D: Pollable> Tokio<D> {
    /// Creates a driver with no ids or channels on `device`. Its core gets the next number of the process, unless
    /// `limits` has one. Needs no runtime.
    #[must_use]
    pub fn new(device: D, limits: Limits) -> Self {
        Tokio::observed(device, limits, ())
    }
}

impl<D: Pollable, O: Observer> Tokio<D, O> {
    /// As [`new`](Tokio::new), with an observer of each step.
    #[must_use]
    pub fn observed(device: D, limits: Limits, observer: O) -> Self {
        let mut drive = Drive::with(device, Channels::default(), observer, limits.numbered());
        drive.set_now(clock::now());
        Tokio { drive, is_unread: false, timer: Timer::default() }
    }

    /// Returns the requests, the events and the core. [`Drive::within`] reads tokio's clock.
    pub fn drive(&mut self) -> &mut Drive<D, Channels, O> {
        &mut self.drive
    }

    /// Runs pending work, then waits until an event may be taken or `at_most` elapses (`None`: no limit). The application may
    /// take any number of events after each wait.
    ///
    /// Other tasks run while it waits. If it need not, they run once tokio's budget of this task is used up, as with a socket.
    ///
    /// # Errors
    /// A channel cannot be registered, or there is no runtime.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        let end = at_most.map_or(Time::NEVER, |span| clock::now().after(span));
        loop {
            let next = self.turn();
            if let Next::Wait(due) = next {
                let due = due.map_or(end, |due| due.min(end));
                poll_fn(|context| self.poll_ready(Some(due), context)).await?;
            } else {
                // An event that is left does not delay those of other channels.
                yield_now().await;
                poll_fn(|context| Poll::Ready(self.look(context))).await?;
            }
            if self.turn() == Next::Deliver || next == Next::Deliver || clock::now() >= end {
                return Ok(());
            }
        }
    }

    /// Reads what the channels have, or handles the deadlines that have passed.
    pub(crate) fn turn(&mut self) -> Next {
        if !std::mem::take(&mut self.is_unread) {
            // Not before a channel is read, so that events precede deadlines that have passed meanwhile.
            self.drive.set_now(clock::now());
        }
        self.drive.run(BUDGET)
    }

    /// Whether a channel was readable since the last turn.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Reads the channels in the next turn.
    pub(crate) fn read_again(&mut self) {
        self.drive.readable_all();
        self.is_unread = true;
    }

    /// As [`poll_readable`](Tokio::poll_readable), also ready once the time has come.
    pub(crate) fn poll_ready(&mut self, due: Option<Time>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // First, so that events precede a deadline that has passed meanwhile.
        match self.poll_readable(context)? {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => self.timer.poll(due, context),
        }
    }

    /// Ready if a channel was not read since it became readable.
    pub(crate) fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.look(context) {
            Ok(()) if !self.is_unread => Poll::Pending,
            looked => Poll::Ready(looked),
        }
    }

    /// Finds the channels that have become readable.
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let mut watches = std::mem::take(self.drive.poller_mut());
        let looked = watches.0.iter_mut().try_for_each(|(channel, watch)| {
            let fd = self.drive.device().fd(*channel).ok_or(Errno::EBADF)?;
            if watch.poll(fd, context)?.is_ready() {
                self.drive.readable(*channel);
                self.is_unread = true;
            }
            Ok(())
        });
        *self.drive.poller_mut() = watches;
        looked
    }

    /// Ends the registrations in the runtime.
    pub(crate) fn leave_runtime(&mut self) {
        self.drive.poller_mut().0.iter_mut().for_each(|(_, watch)| *watch = Watch::default());
        self.timer = Timer::default();
    }
}

/// The channels that a [`Tokio`] waits for.
#[derive(Debug, Default)]
pub struct Channels(Vec<(ChannelKey, Watch)>);

impl<D: Pollable> Poller<D> for Channels {
    fn add(&mut self, channel: ChannelKey, _device: &D) -> Result<(), Errno> {
        self.0.push((channel, Watch::default()));
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _device: &D) {
        self.0.retain(|(known, _)| *known != channel);
    }

    fn clock(&self) -> Option<Time> {
        Some(clock::now())
    }
}
