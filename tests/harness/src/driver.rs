//! Drivers under one interface: requests and events, and a wait.

use std::time::Duration;

use cmid_blocking::{Blocking, Canceller};
use cmid_epoll::Epoll;
use cmid_mio::Mio;
use cmid_proto::{Drive, Errno, Fault, Limits, Observer, Pollable, Poller};
use cmid_tokio::Tokio;
use mio::{Events, Poll};
use tokio::runtime::{Builder, Runtime};

use crate::Check;

/// A driver on a device: one of the project, or a user's own.
pub trait Driver {
    /// The device of the driver's [`Drive`].
    type Device: Pollable;
    /// Its poller.
    type Poller: Poller<Self::Device>;
    /// Its observer.
    type Observer: Observer;

    /// Requests and events.
    fn drive(&mut self) -> &mut DriveOf<Self>;

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
    /// io-tokio.
    Tokio,
}

impl DriverName {
    /// All drivers.
    pub const ALL: [DriverName; 4] = [DriverName::Mio, DriverName::Epoll, DriverName::Blocking, DriverName::Tokio];

    /// Those without a runtime.
    pub const PLAIN: [DriverName; 3] = [DriverName::Mio, DriverName::Epoll, DriverName::Blocking];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DriverName::Mio => "mio",
            DriverName::Epoll => "epoll",
            DriverName::Blocking => "blocking",
            DriverName::Tokio => "tokio",
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

/// The [`Drive`] of a driver.
pub type DriveOf<S> = Drive<<S as Driver>::Device, <S as Driver>::Poller, <S as Driver>::Observer>;

/// A driver that can be made on devices of type `D`, with an observer of type `O`.
pub trait Make<D: Pollable, O: Observer = ()>: Driver<Device = D, Observer = O> + Sized {
    /// Makes a driver without ids or channels, with these limits.
    ///
    /// # Errors
    /// A descriptor of the driver cannot be created.
    fn observed(device: D, limits: Limits, observer: O) -> Check<Self>;

    /// The same with the limits by default.
    ///
    /// # Errors
    /// A descriptor of the driver cannot be created.
    fn make(device: D) -> Check<Self>
    where
        O: Default,
    {
        Self::observed(device, Limits::default(), O::default())
    }
}

/// io-mio with its own poll.
#[derive(Debug)]
pub struct OnMio<D: Pollable, O: Observer = ()> {
    poll: Poll,
    events: Events,
    driver: Mio<D, O>,
}

impl<D: Pollable, O: Observer> Make<D, O> for OnMio<D, O> {
    fn observed(device: D, limits: Limits, observer: O) -> Check<Self> {
        let poll = Poll::new()?;
        let config = cmid_mio::Config { limits, tokens: 0..64 };
        let driver = Mio::observed(device, poll.registry(), config, observer)?;
        Ok(OnMio { poll, events: Events::with_capacity(64), driver })
    }
}

impl<D: Pollable, O: Observer> Driver for OnMio<D, O> {
    type Device = D;
    type Poller = cmid_mio::Channels;
    type Observer = O;

    fn drive(&mut self) -> &mut DriveOf<Self> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        let timeout = self.driver.timeout(at_most);
        if let Err(error) = self.poll.poll(&mut self.events, timeout) {
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(errno(error));
            }
        }
        for event in &self.events {
            self.driver.handle(event);
        }
        let _look = self.driver.turn();
        Ok(())
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::EIO.0))
}

/// io-epoll.
#[derive(Debug)]
pub struct OnEpoll<D: Pollable, O: Observer = ()>(Epoll<D, O>);

impl<D: Pollable, O: Observer> Make<D, O> for OnEpoll<D, O> {
    fn observed(device: D, limits: Limits, observer: O) -> Check<Self> {
        let config = cmid_epoll::Config { limits, ..cmid_epoll::Config::default() };
        Ok(OnEpoll(Epoll::observed(device, config, observer)?))
    }
}

impl<D: Pollable, O: Observer> Driver for OnEpoll<D, O> {
    type Device = D;
    type Poller = cmid_epoll::Channels;
    type Observer = O;

    fn drive(&mut self) -> &mut DriveOf<Self> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.0.wait(at_most).map_err(errno)
    }
}

/// io-blocking: its driver, without `Connection` and `Listener`.
#[derive(Debug)]
pub struct OnBlocking<D: Pollable, O: Observer = ()>(Blocking<D, O>);

impl<D: Pollable, O: Observer> Make<D, O> for OnBlocking<D, O> {
    fn observed(device: D, limits: Limits, observer: O) -> Check<Self> {
        Ok(OnBlocking(Blocking::observed(device, limits, Canceller::new()?, observer)))
    }
}

impl<D: Pollable, O: Observer> Driver for OnBlocking<D, O> {
    type Device = D;
    type Poller = cmid_blocking::Channels;
    type Observer = O;

    fn drive(&mut self) -> &mut DriveOf<Self> {
        self.0.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.0.wait(at_most)
    }
}

/// io-tokio: its driver, without `Connection` and `Listener`, in a runtime of its own.
#[derive(Debug)]
pub struct OnTokio<D: Pollable, O: Observer = ()> {
    // Dropped before the runtime that it is registered in.
    driver: Tokio<D, O>,
    runtime: Runtime,
}

impl<D: Pollable, O: Observer> Make<D, O> for OnTokio<D, O> {
    fn observed(device: D, limits: Limits, observer: O) -> Check<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(OnTokio { driver: Tokio::observed(device, limits, observer), runtime })
    }
}

impl<D: Pollable, O: Observer> Driver for OnTokio<D, O> {
    type Device = D;
    type Poller = cmid_tokio::Channels;
    type Observer = O;

    fn drive(&mut self) -> &mut DriveOf<Self> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.runtime.block_on(self.driver.wait(at_most)).map_err(errno)
    }
}
