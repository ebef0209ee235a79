//! Environments: drivers, their network, and disturbances of it.

use std::net::{IpAddr, SocketAddr};
use std::ops::DerefMut;
use std::process::Child;
use std::time::Duration;

use cmid_proto::Transport;

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

    /// The transport of the devices.
    fn transport(&self) -> Transport {
        Transport::InfiniBand
    }

    /// Whether the device takes the new id of an unread request along when the listener migrates. librdmacm loses it.
    fn takes_unread_requests_along(&self) -> bool {
        false
    }

    /// Grace period: for an event that is not expected, and for one that is to arrive unread.
    fn quiet(&self) -> Duration;

    /// Upper bound of the kernel's time wait.
    fn time_wait(&self) -> Duration;

    /// Bytes of heap in use, to find leaks; 0 if they cannot be counted.
    fn heap(&self) -> u64;

    /// Checks the error counters of the devices, which no program may increase.
    ///
    /// # Errors
    /// A count is not zero.
    fn sound(&self) -> Check {
        Ok(())
    }

    /// Whether [`disturb`](Env::disturb) supports this. A scenario that needs a disturbance runs only in environments
    /// that support it.
    fn can(&self, what: Disturbance) -> bool {
        let _ = what;
        false
    }

    /// Starts a foreign program that connects to this address, sends, and waits for an answer; the scenario kills it.
    /// Only in environments that support [`Disturbance::ProcessDies`].
    ///
    /// # Errors
    /// If it cannot be started.
    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        Err(Failure(format!("this environment has no program that connects to {there}")))
    }

    /// Applies a disturbance to the host.
    ///
    /// # Errors
    /// If the disturbance fails.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this environment cannot do this: {what:?}")))
    }

    /// The same environment with devices that re-register memory in this way; `None` if it is not available.
    /// Scenarios that depend on it run only on the returned environment.
    fn with_rereg(&self, rereg: Rereg) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = rereg;
        None
    }

    /// Makes the next memory call on [`Net::server`]'s device fail. Only in environments that support
    /// [`Disturbance::MemoryFails`].
    ///
    /// # Errors
    /// If the environment does not support it.
    fn fail_next(&self, fault: MemoryFault) -> Check {
        Err(Failure(format!("this environment cannot do this: {fault:?}")))
    }
}

/// A change of a host while drivers run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The host at [`Net::silent`] has a link address, so that its address can be resolved.
    SilentHost,
    /// Its link address changes.
    NeighbourMoves,
    /// The device of [`Net::client`] and [`Net::server`] is removed.
    DeviceGoes,
    /// The device is added again.
    DeviceComes,
    /// A process is killed: the one that [`Env::client_process`] started.
    ProcessDies,
    /// The bond of [`Net::bonded`] fails over to another link. Before the first time the addresses may not exist.
    FailOver,
    /// Memory calls fail, through [`Env::fail_next`].
    MemoryFails,
}

/// The addresses of an environment's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The address of clients.
    pub client: IpAddr,
    /// The address of servers.
    pub server: IpAddr,
    /// A local address without an RDMA device.
    pub no_rdma: IpAddr,
    /// An unused address in the network of `client` and `server`.
    pub nobody: IpAddr,
    /// An address to which there is no route.
    pub no_route: IpAddr,
    /// An address that can be resolved and at which no connection manager answers. Only in environments that can do
    /// [`Disturbance::SilentHost`], and after that.
    pub silent: IpAddr,
    /// Two addresses of one RDMA device on a bond. Only in environments that can do [`Disturbance::FailOver`], and
    /// after that.
    pub bonded: [IpAddr; 2],
}
