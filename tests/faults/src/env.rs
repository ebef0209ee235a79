//! The environment of librdmacm on the two devices of a link.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use cmid_harness::{Check, Disturbance, Env, Failure, Make, Net, Side};

use crate::Link;

/// Ports and QP numbers, each used once per process. A link is used by one process and its peer.
static PORT: AtomicU16 = AtomicU16::new(7000);
static QP_NUM: AtomicU32 = AtomicU32::new(0);

/// Makes drivers on a link.
#[derive(Debug)]
pub struct LinkEnv<S> {
    link: Link,
    /// The first QP number of this process. The kernel treats the same number from two processes as a stale
    /// connection.
    first_qp: u32,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<cmid_verbs::Verbs>> LinkEnv<S> {
    /// For the process that runs a scenario.
    #[must_use]
    pub fn new(link: Link) -> Self {
        LinkEnv { link, first_qp: 0x1000, driver: PhantomData }
    }

    /// For the process of the peer.
    #[must_use]
    pub fn of_the_peer(link: Link) -> Self {
        // The kernel may still remember the QP numbers of an earlier peer.
        LinkEnv { first_qp: 0x10_0000 + (std::process::id() << 8 & 0xf_ff00), ..LinkEnv::new(link) }
    }
}

impl<S: Make<cmid_verbs::Verbs>> Env for LinkEnv<S> {
    type Driver = S;

    fn driver(&self) -> Check<S> {
        S::make(cmid_harness::open_verbs().map_err(|error| Failure(error.to_string()))?)
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
            // librdmacm keeps a device open until it lists the devices again.
            Disturbance::DeviceComes => self.link.add_devices_again(|| Ok(cmid_verbs::devices().map(drop)?)),
            Disturbance::SilentHost
            | Disturbance::NeighbourMoves
            | Disturbance::ProcessDies
            | Disturbance::FailOver
            | Disturbance::MemoryFails => Err(Failure(format!("this environment cannot do this: {what:?}"))),
        }
    }
}
