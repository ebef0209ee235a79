//! Where scenarios run: drivers, and the network that they are on.

use std::net::{IpAddr, SocketAddr};
use std::ops::DerefMut;
use std::process::Child;
use std::time::Duration;

use crate::{Check, Driver, Failure, MemoryFault, Rereg, TestDevice};

/// Where scenarios run.
pub trait Env: Sync {
    /// The drivers under test.
    type Driver: Driver<Device: DerefMut<Target: TestDevice>>;

    /// A fresh driver.
    ///
    /// # Errors
    /// What making it failed with.
    fn driver(&self) -> Result<Self::Driver, Failure>;

    /// A fresh driver on another device than that of [`Env::net`], and an address that this device has.
    ///
    /// # Errors
    /// What making it failed with, or that there is none.
    fn other_device(&self) -> Check<(Self::Driver, IpAddr)> {
        Err(Failure("this lab has one device".into()))
    }

    /// The network.
    fn net(&self) -> Net;

    /// A port and a QP number that nobody has used: the kernel takes equal QP numbers for stale connections.
    fn fresh(&self) -> (u16, u32);

    /// How long to look for events where none is expected, and how long to let one happen unread.
    fn quiet(&self) -> Duration;

    /// How long a time wait lasts, at most.
    fn time_wait(&self) -> Duration;

    /// Bytes of heap in use, to find leaks; 0 if they cannot be counted.
    fn heap(&self) -> u64;

    /// What devices have noticed that no program can do.
    ///
    /// # Errors
    /// They have noticed something.
    fn sound(&self) -> Check {
        Ok(())
    }

    /// Whether [`disturb`](Env::disturb) can do this. Scenarios that need what a lab cannot do are not run on it.
    fn can(&self, what: Disturbance) -> bool {
        let _ = what;
        false
    }

    /// Starts a program of somebody else's that connects to this address, sends, and waits for an answer: to be killed.
    /// Only on labs that can do [`Disturbance::ProcessDies`].
    ///
    /// # Errors
    /// What starting it failed with.
    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        Err(Failure(format!("this lab has no program that connects to {there}")))
    }

    /// Does to the host what no driver can do.
    ///
    /// # Errors
    /// What doing so failed with.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this lab cannot do this: {what:?}")))
    }

    /// The same lab with devices that re-register memory so; `None` if it has none such. Scenarios for which that matters
    /// run on what this returns, or not at all.
    fn with_rereg(&self, rereg: Rereg) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = rereg;
        None
    }

    /// The next call about memory on [`Net::server`]'s device goes wrong. Only on labs that can do
    /// [`Disturbance::MemoryFails`].
    ///
    /// # Errors
    /// If the lab cannot.
    fn fail_next(&self, fault: MemoryFault) -> Check {
        Err(Failure(format!("this lab cannot do this: {fault:?}")))
    }
}

/// What happens to a host while drivers run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The host at [`Net::silent`] has a link address, so that its address can be resolved.
    SilentHost,
    /// It gets another one.
    NeighbourMoves,
    /// The device behind [`Net::client`] and [`Net::server`] goes away.
    DeviceGoes,
    /// It comes back.
    DeviceComes,
    /// A process is killed: done by killing what [`Env::client_process`] started.
    ProcessDies,
    /// The link below [`Net::bonded`] fails over to another one; before the first time the addresses may not be there.
    FailOver,
    /// Calls about memory go wrong: done by [`Env::fail_next`].
    MemoryFails,
}

/// The addresses of a lab's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Where clients are.
    pub client: IpAddr,
    /// Where servers are.
    pub server: IpAddr,
    /// A local address without an RDMA device.
    pub no_rdma: IpAddr,
    /// An address that nobody has, in the network of the two.
    pub nobody: IpAddr,
    /// An address to which there is no route.
    pub no_route: IpAddr,
    /// An address that can be resolved and at which no connection manager answers. Only on labs that can do
    /// [`Disturbance::SilentHost`], and after that.
    pub silent: IpAddr,
    /// Two addresses of one RDMA device on a bond. Only on labs that can do [`Disturbance::FailOver`], and after that.
    pub bonded: [IpAddr; 2],
}
