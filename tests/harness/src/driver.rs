//! A driver that tests can wait on, and the project's own drivers as such.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use cmid_blocking::{Blocking, Canceller, Channels};
use cmid_epoll::{Epoll, Interest};
use cmid_mio::{Mio, Tokens};
use cmid_proto::{Device, Drive, Errno, Fault, Limits, Pollable, PolledDevice};
use mio::{Events, Poll};

use crate::Check;

/// A driver on a device, with nothing on it.
pub trait Driver {
    /// The device as the driver's [`Drive`] sees it.
    type Device: Device;

    /// The requests and events.
    fn drive(&mut self) -> &mut Drive<Self::Device>;

    /// Does what there is to do and waits until there is something to look at, for at most `at_most`; with
    /// `None` as long as it takes.
    ///
    /// # Errors
    /// What waiting failed with.
    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno>;

    /// A scenario has taken this fault off the drive.
    fn noticed(&mut self, fault: Fault) {
        let _ = fault;
    }
}

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

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// librdmacm, on the network of the project's VM.
    Verbs,
}

/// The device that a driver was made on.
pub type Under<S> = <<S as Driver>::Device as Deref>::Target;

/// A subject that can be made on a device of this type.
pub trait Make<D>: Driver<Device: DerefMut<Target = D>> + Sized {
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

impl<D: Pollable> Make<D> for OnMio<D> {
    fn make(device: D) -> Check<Self> {
        let poll = Poll::new()?;
        let config = cmid_mio::Config { limits: Limits::default(), tokens: 0..64 };
        let driver = Mio::new(device, poll.registry(), config)?;
        Ok(OnMio { poll, events: Events::with_capacity(64), driver })
    }
}

impl<D: Pollable> Driver for OnMio<D> {
    type Device = PolledDevice<D, Tokens>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        let timeout = self.driver.before_poll(at_most);
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

impl<D: Pollable> Make<D> for OnEpoll<D> {
    fn make(device: D) -> Check<Self> {
        Ok(OnEpoll(Epoll::new(device, cmid_epoll::Config::default())?))
    }
}

impl<D: Pollable> Driver for OnEpoll<D> {
    type Device = PolledDevice<D, Interest>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.0.wait(at_most)
    }
}

/// io-blocking, below its `std::net` face.
#[derive(Debug)]
pub struct OnBlocking<D: Pollable>(Blocking<D>);

impl<D: Pollable> Make<D> for OnBlocking<D> {
    fn make(device: D) -> Check<Self> {
        Ok(OnBlocking(Blocking::new(device, Limits::default(), Canceller::new()?)))
    }
}

impl<D: Pollable> Driver for OnBlocking<D> {
    type Device = PolledDevice<D, Channels>;

    fn drive(&mut self) -> &mut Drive<Self::Device> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.0.wait(at_most)
    }
}
