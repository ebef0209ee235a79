//! The drivers, with a common way to wait.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Result;
use cmid_blocking::{Blocking, Canceller};
use cmid_epoll::Epoll;
use cmid_mio::Mio;
use cmid_proto::datapath::DataPath;
use cmid_proto::{Drive, Limits, Poller};
use cmid_trace::Trace;
use mio::{Events, Poll};

/// The drive of a driver.
pub(crate) type DriveOf<S> = Drive<<S as Driver>::Path, <S as Driver>::Poller, Option<Trace>>;

/// A driver that can wait.
pub(crate) trait Driver: Sized {
    type Path: DataPath;
    type Poller: Poller<Self::Path>;

    fn start(device: Self::Path, trace: Option<Trace>) -> Result<Self>;

    /// The driver's requests and events.
    fn drive(&mut self) -> &mut DriveOf<Self>;

    /// Runs pending work, then blocks until an event may be taken or `at_most` elapses.
    fn wait(&mut self, at_most: Duration) -> Result<()>;
}

impl<D: DataPath> Driver for Epoll<D, Option<Trace>> {
    type Path = D;
    type Poller = cmid_epoll::Channels;

    fn start(device: D, trace: Option<Trace>) -> Result<Self> {
        Ok(Epoll::observed(device, cmid_epoll::Config::default(), trace)?)
    }

    fn drive(&mut self) -> &mut DriveOf<Self> {
        Epoll::drive(self)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        Ok(Epoll::wait(self, Some(at_most))?)
    }
}

impl<D: DataPath> Driver for Blocking<D, Option<Trace>> {
    type Path = D;
    type Poller = cmid_blocking::Channels;

    fn start(device: D, trace: Option<Trace>) -> Result<Self> {
        Ok(Blocking::observed(device, Limits::default(), Canceller::new()?, trace))
    }

    fn drive(&mut self) -> &mut DriveOf<Self> {
        Blocking::drive(self)
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        Ok(Blocking::wait(self, Some(at_most))?)
    }
}

/// cmid's mio driver in a poll without other sources.
pub(crate) struct MioAlone<D: DataPath> {
    poll: Poll,
    events: Events,
    driver: Mio<D, Option<Trace>>,
}

impl<D: DataPath> Driver for MioAlone<D> {
    type Path = D;
    type Poller = cmid_mio::Channels;

    fn start(device: D, trace: Option<Trace>) -> Result<Self> {
        let poll = Poll::new()?;
        let config = cmid_mio::Config { limits: Limits::default(), tokens: 0..64 };
        let driver = Mio::observed(device, poll.registry(), config, trace)?;
        Ok(MioAlone { poll, events: Events::with_capacity(16), driver })
    }

    fn drive(&mut self) -> &mut DriveOf<Self> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, self.driver.timeout(Some(at_most))) {
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
