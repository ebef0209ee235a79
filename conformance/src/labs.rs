//! The two labs: a simulated fabric in real time, and soft-RoCE as the project's VM sets it up.

use std::marker::PhantomData;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use cmid_sim::{Clock, Config, Fabric, Host, SimDevice};

use crate::{Check, Lab, Make, Net};

/// Ports and QP numbers, each given out once in this process.
static PORT: AtomicU16 = AtomicU16::new(20_000);
static QP_NUM: AtomicU32 = AtomicU32::new(0x1000);

fn fresh() -> (u16, u32) {
    // Far apart: a scenario may use the numbers that follow its own.
    (PORT.fetch_add(10, Ordering::Relaxed), QP_NUM.fetch_add(0x100, Ordering::Relaxed))
}

/// What malloc has given out and not got back, in every arena, whoever asked: Rust or C.
fn heap() -> u64 {
    use malloc_info::info::{SystemType, TotalType};
    let Ok(info) = malloc_info::malloc_info() else { return 0 };
    let system = info.system.iter().filter(|part| part.r#type == SystemType::Current).map(|part| part.size);
    let total = |wanted: TotalType| info.total.iter().filter(move |part| part.r#type == wanted).map(|part| part.size);
    let given = system.chain(total(TotalType::Mmap)).sum::<usize>();
    let free = total(TotalType::Fast).chain(total(TotalType::Rest)).sum::<usize>();
    given.saturating_sub(free) as u64
}

/// The network of the project's VM; the simulated one has the same addresses.
fn net() -> Net {
    Net {
        client: Ipv4Addr::new(10, 99, 0, 1).into(),
        server: Ipv4Addr::new(10, 99, 0, 2).into(),
        no_rdma: Ipv4Addr::new(172, 16, 0, 1).into(),
        nobody: Ipv4Addr::new(10, 99, 0, 77).into(),
        no_route: Ipv4Addr::new(8, 8, 8, 8).into(),
    }
}

/// A simulated host with two addresses, as a kernel with one device has them.
#[derive(Debug)]
pub struct SimLab<S> {
    host: Host,
    subject: PhantomData<fn() -> S>,
}

impl<S: Make<SimDevice>> SimLab<S> {
    /// A fresh fabric, in real time, because drivers wait for real descriptors.
    #[must_use]
    pub fn new() -> Self {
        let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
        let host = fabric.host(&[net().client, net().server]);
        host.add_plain_addr(net().no_rdma);
        SimLab { host, subject: PhantomData }
    }
}

impl<S: Make<SimDevice>> Default for SimLab<S> {
    fn default() -> Self {
        SimLab::new()
    }
}

impl<S: Make<SimDevice>> Lab for SimLab<S> {
    type Subject = S;

    fn subject(&self) -> Check<S> {
        S::make(self.host.device())
    }

    fn net(&self) -> Net {
        net()
    }

    fn fresh(&self) -> (u16, u32) {
        fresh()
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(60)
    }

    fn time_wait(&self) -> Duration {
        // The simulator's default is Linux 6.12: 0.53 s.
        Duration::from_millis(700)
    }

    fn heap(&self) -> u64 {
        heap()
    }
}

/// librdmacm on the kernel of the project's VM (soft-RoCE on a dummy interface with two addresses).
#[cfg(feature = "verbs")]
#[derive(Debug)]
pub struct VerbsLab<S>(PhantomData<fn() -> S>);

#[cfg(feature = "verbs")]
impl<S: Make<cmid_verbs::Verbs>> VerbsLab<S> {
    /// The lab. That there is a device shows when the first driver is made.
    #[must_use]
    pub fn new() -> Self {
        VerbsLab(PhantomData)
    }
}

#[cfg(feature = "verbs")]
impl<S: Make<cmid_verbs::Verbs>> Default for VerbsLab<S> {
    fn default() -> Self {
        VerbsLab::new()
    }
}

#[cfg(feature = "verbs")]
impl<S: Make<cmid_verbs::Verbs>> Lab for VerbsLab<S> {
    type Subject = S;

    fn subject(&self) -> Check<S> {
        S::make(cmid_verbs::Verbs::open()?)
    }

    fn net(&self) -> Net {
        net()
    }

    fn fresh(&self) -> (u16, u32) {
        fresh()
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn time_wait(&self) -> Duration {
        // Linux 6.1 takes 2.1 s, and the emulated machine its time.
        Duration::from_millis(2500)
    }

    fn heap(&self) -> u64 {
        heap()
    }
}
