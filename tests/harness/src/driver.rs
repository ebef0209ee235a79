//! Drivers under one interface: requests and events, and a wait.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use cmid_blocking::{Blocking, Canceller, Channels};
use cmid_epoll::{Epoll, Interest};
use cmid_mio::{Mio, Tokens};
use cmid_proto::{Device, Drive, Errno, Fault, Limits, Pollable, PolledDevice};
use mio::{Events, Poll};

use crate::Check;

/// A driver on a device: one of the project, or a user's own.
pub trait Driver {
    /// The type of the device of the driver's [`Drive`].
    type Device: Device;

    /// Requests and events.
    fn drive(&mut self) -> &mut Drive<Self::Device>;

    /// Runs pending work, then blocks until an event may be taken or `at_most` elapses. `None`: no limit.
    ///
    /// # Errors
    /// The wait failed.
    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno>;

    /// Called with each fault that a step takes from [`Drive::next_fault`].
    fn noticed(&mut self, fault: Fault) {
        let _ = fault;
    }
}

/// The name of a driver of the project.
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
    /// All drivers.
    pub const ALL: [DriverName; 3] = [DriverName::Mio, DriverName::Epoll, DriverName::Blocking];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DriverName::Mio => "mio",
            DriverName::Epoll => "epoll",
            DriverName::Blocking => "blocking",
        }
    }
}

/// The name of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceName {
    /// The simulated fabric.
    Sim,
    /// The RDMA devices of the project's VM.
    Verbs,
}

/// The type of the device that a driver was made on.
pub type Under<S> = <<S as Driver>::Device as Deref>::Target;

/// A driver that can be made on devices of type `D`.
pub trait Make<D>: Driver<Device: DerefMut<Target = D>> + Sized {
    /// Makes a driver without ids or channels.
    ///
    /// # Errors
    /// A descriptor of the driver cannot be created.
    fn make(device: D) -> Check<Self>;
}

/// io-mio with its own poll.
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
        let timeout = self.driver.timeout(at_most);
        if let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)));
            }
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

/// io-blocking: its driver, without `Connection` and `Listener`.
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
