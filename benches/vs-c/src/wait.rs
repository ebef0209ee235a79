//! The drivers, waited for in the plainest way.

use std::io::ErrorKind;

use anyhow::Result;
use cmid_blocking::{Blocking, Canceller, Channels};
use cmid_epoll::{Epoll, Interest};
use cmid_mio::{Mio, Tokens};
use cmid_proto::{Drive, Limits, Pollable, PolledDevice, Poller};
use mio::{Events, Poll};

/// A driver and how to wait for it.
pub(crate) trait Waits: Sized {
    type Device: Pollable;
    type Poller: Poller;

    fn new(device: Self::Device) -> Result<Self>;

    /// The driver's requests and events.
    fn drive(&mut self) -> &mut Drive<PolledDevice<Self::Device, Self::Poller>>;

    /// Sleeps until there is something to look at, as long as it takes.
    fn wait(&mut self) -> Result<()>;
}

impl<D: Pollable> Waits for Epoll<D> {
    type Device = D;
    type Poller = Interest;

    fn new(device: D) -> Result<Self> {
        Ok(Epoll::new(device, cmid_epoll::Config::default())?)
    }

    fn drive(&mut self) -> &mut Drive<PolledDevice<D, Interest>> {
        Epoll::drive(self)
    }

    fn wait(&mut self) -> Result<()> {
        Ok(Epoll::wait(self, None)?)
    }
}

impl<D: Pollable> Waits for Blocking<D> {
    type Device = D;
    type Poller = Channels;

    fn new(device: D) -> Result<Self> {
        Ok(Blocking::new(device, Limits::default(), Canceller::new()?))
    }

    fn drive(&mut self) -> &mut Drive<PolledDevice<D, Channels>> {
        Blocking::drive(self)
    }

    fn wait(&mut self) -> Result<()> {
        Ok(Blocking::wait(self, None)?)
    }
}

/// cmid's mio driver in a poll of its own.
pub(crate) struct MioAlone<D: Pollable> {
    poll: Poll,
    events: Events,
    driver: Mio<D>,
}

impl<D: Pollable> Waits for MioAlone<D> {
    type Device = D;
    type Poller = Tokens;

    fn new(device: D) -> Result<Self> {
        let poll = Poll::new()?;
        let driver = Mio::new(device, poll.registry(), cmid_mio::Config { limits: Limits::default(), tokens: 0..64 })?;
        Ok(MioAlone { poll, events: Events::with_capacity(64), driver })
    }

    fn drive(&mut self) -> &mut Drive<PolledDevice<D, Tokens>> {
        self.driver.drive()
    }

    fn wait(&mut self) -> Result<()> {
        match self.poll.poll(&mut self.events, self.driver.before_poll(None)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        for event in &self.events {
            self.driver.handle(event);
        }
        let _look = self.driver.turn();
        Ok(())
    }
}
