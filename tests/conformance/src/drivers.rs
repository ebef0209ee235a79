//! The project's own drivers as subjects.

use std::time::Duration;

use cmid_blocking::{Blocking, Canceller, Channels};
use cmid_epoll::{Epoll, Interest};
use cmid_mio::{Mio, Tokens};
use cmid_proto::{Drive, Errno, Limits, Pollable, PolledDevice};
use mio::{Events, Poll};

use crate::{Check, Driver, TestDevice};

/// Which driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DriverName {
    /// io-mio.
    Mio,
    /// io-epoll.
    Epoll,
    /// io-blocking.
    Blocking,
}

impl DriverName {
    /// All of them.
    pub const ALL: [DriverName; 3] = [DriverName::Mio, DriverName::Epoll, DriverName::Blocking];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DriverName::Mio => "mio",
            DriverName::Epoll => "epoll",
            DriverName::Blocking => "blocking",
        }
    }
}

/// A subject that can be made on a device of this type.
pub trait Make<D>: Driver + Sized {
    /// A fresh driver on this device.
    ///
    /// # Errors
    /// What making it failed with.
    fn make(device: D) -> Check<Self>;
}

/// io-mio, polled as a program does that owns its poll.
#[derive(Debug)]
pub struct OnMio<D: Pollable> {
    poll: Poll,
    events: Events,
    driver: Mio<D>,
}

impl<D: TestDevice + Pollable> Make<D> for OnMio<D> {
    fn make(device: D) -> Check<Self> {
        let poll = Poll::new()?;
        let config = cmid_mio::Config { limits: Limits::default(), tokens: 0..64 };
        let driver = Mio::new(device, poll.registry(), config)?;
        Ok(OnMio { poll, events: Events::with_capacity(16), driver })
    }
}

impl<D: TestDevice + Pollable> Driver for OnMio<D> {
    type Device = PolledDevice<D, Tokens>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), Errno> {
        let timeout = self.driver.before_poll(Some(at_most));
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != std::io::ErrorKind::Interrupted
        {
            return Err(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)));
        }
        for event in &self.events {
            self.driver.handle(event);
        }
        let _look = self.driver.turn();
        Ok(())
    }
}

/// io-epoll.
#[derive(Debug)]
pub struct OnEpoll<D: Pollable>(Epoll<D>);

impl<D: TestDevice + Pollable> Make<D> for OnEpoll<D> {
    fn make(device: D) -> Check<Self> {
        Ok(OnEpoll(Epoll::new(device, cmid_epoll::Config::default())?))
    }
}

impl<D: TestDevice + Pollable> Driver for OnEpoll<D> {
    type Device = PolledDevice<D, Interest>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), Errno> {
        self.0.wait(Some(at_most))
    }
}

/// io-blocking, below its `std::net` face.
#[derive(Debug)]
pub struct OnBlocking<D: Pollable>(Blocking<D>);

impl<D: TestDevice + Pollable> Make<D> for OnBlocking<D> {
    fn make(device: D) -> Check<Self> {
        Ok(OnBlocking(Blocking::new(device, Limits::default(), Canceller::new()?)))
    }
}

impl<D: TestDevice + Pollable> Driver for OnBlocking<D> {
    type Device = PolledDevice<D, Channels>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), Errno> {
        self.0.wait(Some(at_most))
    }
}
