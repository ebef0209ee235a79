//! librdmacm on the two devices of a wire.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use cmid_conformance::{Check, Disturbance, Env, Failure, Make, Net, Side};

use crate::Link;

/// Ports and QP numbers, each given out once in this process. A wire is used by one process, and its peer.
static PORT: AtomicU16 = AtomicU16::new(7000);
static QP_NUM: AtomicU32 = AtomicU32::new(0);

/// Drivers on a wire.
#[derive(Debug)]
pub struct WireLab<S> {
    link: Link,
    /// The first QP number of this process: the kernel takes equal ones of two processes for a stale connection.
    first_qp: u32,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<cmid_verbs::Verbs>> WireLab<S> {
    /// The process that runs a scenario.
    #[must_use]
    pub fn new(link: Link) -> Self {
        WireLab { link, first_qp: 0x1000, driver: PhantomData }
    }

    /// The process of its peer.
    #[must_use]
    pub fn of_the_peer(link: Link) -> Self {
        // The one before it may not be forgotten yet.
        WireLab { first_qp: 0x10_0000 + (std::process::id() << 8 & 0xf_ff00), ..WireLab::new(link) }
    }
}

impl<S: Make<cmid_verbs::Verbs>> Env for WireLab<S> {
    type Driver = S;

    fn driver(&self) -> Check<S> {
        S::make(cmid_verbs::Verbs::open()?)
    }

    fn net(&self) -> Net {
        self.link.net()
    }

    fn fresh(&self) -> (u16, u32) {
        (PORT.fetch_add(10, Ordering::Relaxed), self.first_qp + QP_NUM.fetch_add(0x100, Ordering::Relaxed))
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn time_wait(&self) -> Duration {
        Duration::from_millis(2500)
    }

    fn heap(&self) -> u64 {
        0
    }

    fn can(&self, what: Disturbance) -> bool {
        matches!(what, Disturbance::DeviceGoes | Disturbance::DeviceComes)
    }

    fn disturb(&self, what: Disturbance) -> Check {
        match what {
            Disturbance::DeviceGoes => self.link.remove_device(Side::Client),
            // librdmacm keeps a device open until it looks again which ones there are.
            Disturbance::DeviceComes => self.link.add_devices_again(|| Ok(cmid_verbs::devices().map(drop)?)),
            Disturbance::SilentHost
            | Disturbance::NeighbourMoves
            | Disturbance::ProcessDies
            | Disturbance::FailOver
            | Disturbance::MemoryFails => Err(Failure(format!("this lab cannot do this: {what:?}"))),
        }
    }
}
