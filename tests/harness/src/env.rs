//! Environments: drivers, the network they are on, and what can be done to it.

use std::net::{IpAddr, SocketAddr};
use std::ops::DerefMut;
use std::process::Child;
use std::time::Duration;

use crate::{Check, Driver, Failure, MemoryFault, Rereg, TestDevice};

/// An environment that scenarios run in.
pub trait Env: Sync {
    /// The drivers under test.
    type Driver: Driver<Device: DerefMut<Target: TestDevice>>;

    /// Makes a driver.
    ///
    /// # Errors
    /// The device cannot be opened, or the driver cannot be made.
    fn driver(&self) -> Result<Self::Driver, Failure>;

    /// Makes a driver on another device than that of [`Env::net`]; with an address of that device.
    ///
    /// # Errors
    /// As [`Env::driver`]; or the environment has one device only.
    fn other_device(&self) -> Check<(Self::Driver, IpAddr)> {
        Err(Failure("this environment has one device".into()))
    }

    /// The network.
    fn net(&self) -> Net;

    /// An unused port and an unused QP number: the kernel treats a repeated QP number as a stale connection.
    fn fresh(&self) -> (u16, u32);

    /// Grace period: for an event that is not expected, and for one that is to arrive unread.
    fn quiet(&self) -> Duration;

    /// Upper bound of the kernel's time wait.
    fn time_wait(&self) -> Duration;

    /// Bytes of heap in use, to find leaks; 0 if they cannot be counted.
    fn heap(&self) -> u64;

    /// Checks what devices count that no program may cause.
    ///
    /// # Errors
    /// A count is not zero.
    fn sound(&self) -> Check {
        Ok(())
    }

    /// Whether [`disturb`](Env::disturb) can do this. A scenario that needs a disturbance runs only where it is possible.
    fn can(&self, what: Disturbance) -> bool {
        let _ = what;
        false
    }

    /// Starts a program of somebody else's that connects to this address, sends, and waits for an answer: to be killed.
    /// Only in environments that can do [`Disturbance::ProcessDies`].
    ///
    /// # Errors
    /// What starting it failed with.
    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        Err(Failure(format!("this environment has no program that connects to {there}")))
    }

    /// Does to the host what no driver can do.
    ///
    /// # Errors
    /// What doing so failed with.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this environment cannot do this: {what:?}")))
    }

    /// The same environment with devices that re-register memory so; `None` if it has none such. Scenarios for which that matters
    /// run on what this returns, or not at all.
    fn with_rereg(&self, rereg: Rereg) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = rereg;
        None
    }

    /// The next call about memory on [`Net::server`]'s device goes wrong. Only in environments that can do
    /// [`Disturbance::MemoryFails`].
    ///
    /// # Errors
    /// If the environment cannot.
    fn fail_next(&self, fault: MemoryFault) -> Check {
        Err(Failure(format!("this environment cannot do this: {fault:?}")))
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

/// The addresses of an environment's network.
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
    /// An address that can be resolved and at which no connection manager answers. Only in environments that can do
    /// [`Disturbance::SilentHost`], and after that.
    pub silent: IpAddr,
    /// Two addresses of one RDMA device on a bond. Only in environments that can do [`Disturbance::FailOver`], and after that.
    pub bonded: [IpAddr; 2],
}
