//! An environment that records its drivers.

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cmid_proto::{Core, Errno, Limits, Pollable};
use cmid_trace::{Trace, TraceSink};

use crate::{Check, Disturbance, DriveOf, Driver, Env, Failure, Make, MemoryFault, Net, Rereg, TestDevice};

/// An environment that provides its devices without drivers.
pub trait Devices: Env {
    /// The type of the devices.
    type Device: TestDevice + Pollable;

    /// Creates a device.
    ///
    /// # Errors
    /// The device cannot be created.
    fn device(&self) -> Check<Self::Device>;

    /// As [`Env::other_device`], without a driver.
    ///
    /// # Errors
    /// As [`Env::other_device`].
    fn bare_other_device(&self) -> Check<(Self::Device, IpAddr)>;
}

/// An environment over another one that records each driver in the next stream of a sink.
#[derive(Debug)]
pub struct TracedEnv<L, S> {
    env: L,
    reel: Arc<dyn TraceSink>,
    ends: Ends,
    driver: PhantomData<fn() -> S>,
}

/// The stream numbers and final cores of dropped drivers.
type Ends = Arc<Mutex<Vec<(usize, Core)>>>;

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Devices, S: Make<L::Device, Trace>> TracedEnv<L, S> {
    /// Creates an environment that records the drivers of `env`.
    #[must_use]
    pub fn new(env: L, reel: Arc<dyn TraceSink>) -> Self {
        TracedEnv { env, reel, ends: Ends::default(), driver: PhantomData }
    }

    /// Returns the stream numbers, from 0, and final cores of the dropped drivers.
    #[must_use]
    pub fn ends(&self) -> Vec<(usize, Core)> {
        lock(&self.ends).clone()
    }

    fn on(&self, device: L::Device) -> Check<OnTraced<S>> {
        let trace = Trace::new(Arc::clone(&self.reel))?;
        let place = trace.stream().ok_or_else(|| Failure("a trace without a stream".into()))?;
        Ok(OnTraced { driver: S::observed(device, Limits::default(), trace)?, place, ends: Arc::clone(&self.ends) })
    }
}

/// A driver that saves a copy of its core when it is dropped.
#[derive(Debug)]
pub struct OnTraced<S: Driver> {
    driver: S,
    place: usize,
    ends: Ends,
}

impl<S: Driver> Driver for OnTraced<S> {
    type Device = S::Device;
    type Poller = S::Poller;
    type Observer = S::Observer;

    fn drive(&mut self) -> &mut DriveOf<S> {
        self.driver.drive()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> Result<(), Errno> {
        self.driver.wait(at_most)
    }
}

impl<S: Driver> Drop for OnTraced<S> {
    fn drop(&mut self) {
        let core = self.driver.drive().core().clone();
        lock(&self.ends).push((self.place, core));
    }
}

impl<L: Devices, S: Make<L::Device, Trace>> Env for TracedEnv<L, S> {
    type Driver = OnTraced<S>;

    fn driver(&self) -> Check<OnTraced<S>> {
        self.on(self.env.device()?)
    }

    fn other_device(&self) -> Check<(OnTraced<S>, IpAddr)> {
        let (device, address) = self.env.bare_other_device()?;
        Ok((self.on(device)?, address))
    }

    fn net(&self) -> Net {
        self.env.net()
    }

    fn fresh(&self) -> (u16, u32) {
        self.env.fresh()
    }

    fn takes_unread_requests_along(&self) -> bool {
        self.env.takes_unread_requests_along()
    }

    fn quiet(&self) -> Duration {
        self.env.quiet()
    }

    fn time_wait(&self) -> Duration {
        self.env.time_wait()
    }

    fn heap(&self) -> u64 {
        self.env.heap()
    }

    fn can(&self, what: Disturbance) -> bool {
        self.env.can(what)
    }

    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        self.env.client_process(there)
    }

    fn disturb(&self, what: Disturbance) -> Check {
        self.env.disturb(what)
    }

    /// The returned environment records to the same sink.
    fn with_rereg(&self, rereg: Rereg) -> Option<Self> {
        let env = self.env.with_rereg(rereg)?;
        let (reel, ends) = (Arc::clone(&self.reel), Arc::clone(&self.ends));
        Some(TracedEnv { env, reel, ends, driver: PhantomData })
    }

    fn fail_next(&self, fault: MemoryFault) -> Check {
        self.env.fail_next(fault)
    }
}
