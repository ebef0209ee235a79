//! Environments: drivers, their network, and disturbances of it.

use std::net::{IpAddr, SocketAddr};
use std::process::Child;
use std::time::Duration;

use cmid_proto::Transport;

use crate::{Check, Driver, Failure, MemoryFault, Rereg, TestDevice};

/// An environment that scenarios run in.
pub trait Env: Sync {
    /// The drivers under test.
    type Driver: Driver<Device: TestDevice>;

    /// Makes a driver.
    ///
    /// # Errors
    /// The device cannot be opened, or the driver cannot be made.
    fn driver(&self) -> Result<Self::Driver, Failure>;

    /// Makes a driver on another device than that of [`Env::net`]. Returns the driver and an address of the device.
    ///
    /// # Errors
    /// As [`Env::driver`]; also if the environment has only one device.
    fn other_device(&self) -> Check<(Self::Driver, IpAddr)> {
        Err(Failure("this environment has one device".into()))
    }

    /// The network.
    fn net(&self) -> Net;

    /// Returns an unused port and an unused QP number. The kernel rejects a repeated QP number as a stale connection.
    fn fresh(&self) -> (u16, u32);

    /// The transport of the devices.
    fn transport(&self) -> Transport {
        Transport::InfiniBand
    }

    /// Whether a device call that migrates a listener also moves the ids of its unread requests. The kernel backend
    /// moves them; librdmacm loses them.
    fn takes_unread_requests_along(&self) -> bool {
        false
    }

    /// The grace period for unexpected events, and the time for an event to arrive unread.
    fn quiet(&self) -> Duration;

    /// Upper bound of the kernel's time wait.
    fn time_wait(&self) -> Duration;

    /// Returns the bytes of heap in use, to find leaks; 0 if they cannot be counted.
    fn heap(&self) -> u64;

    /// Checks that the error counters of the devices are zero, which no program may increase.
    ///
    /// # Errors
    /// A counter is not zero.
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
    /// The program cannot be started.
    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        Err(Failure(format!("this environment has no program that connects to {there}")))
    }

    /// Applies a disturbance to the host.
    ///
    /// # Errors
    /// The disturbance fails or is not supported.
    fn disturb(&self, what: Disturbance) -> Check {
        Err(Failure(format!("this environment cannot do this: {what:?}")))
    }

    /// The same environment with devices that re-register memory in this way; `None` if it is not available.
    /// Scenarios that depend on this way run only in the returned environment.
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
    /// The environment does not support it.
    fn fail_next(&self, fault: MemoryFault) -> Check {
        Err(Failure(format!("this environment cannot do this: {fault:?}")))
    }
}

/// A change of a host while drivers run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The host at [`Net::silent`] gets a link address, so that its IP address can be resolved.
    SilentHost,
    /// The link address of the host at [`Net::silent`] changes.
    NeighbourMoves,
    /// The device of [`Net::client`] and [`Net::server`] is removed.
    DeviceGoes,
    /// The device is added again.
    DeviceComes,
    /// The process of [`Env::client_process`] is killed.
    ProcessDies,
    /// The bond of [`Net::bonded`] fails over to another link. The first failover may create the addresses.
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
    /// An address that can be resolved and at which no connection manager answers. Valid after
    /// [`Disturbance::SilentHost`], in environments that support it.
    pub silent: IpAddr,
    /// Two addresses of one RDMA device on a bond. Valid after [`Disturbance::FailOver`], in environments that support
    /// it.
    pub bonded: [IpAddr; 2],
}
