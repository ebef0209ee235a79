//! The RDMA devices of a real kernel.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Child;
use std::time::Duration;

use cmid_proto::Transport;

use super::network::{fresh, net};
use super::{Devices, guest, open_verbs};
use crate::{Check, Disturbance, Env, Failure, Make, Net, Rereg};

/// The RDMA devices of the project's VM, soft-RoCE or soft-iWARP on a dummy interface with two addresses, over the
/// [`backend`](crate::backend).
#[derive(Debug)]
pub struct VerbsEnv<S> {
    rereg: Rereg,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<cmid_verbs::Verbs>> VerbsEnv<S> {
    /// Creates the environment. The devices are opened later: a missing device is an error of the first driver.
    #[must_use]
    pub fn new() -> Self {
        VerbsEnv::with(Rereg::No)
    }

    /// Creates the environment of a process with a replaced `ibv_rereg_mr` that supports `rereg`.
    #[must_use]
    pub fn with(rereg: Rereg) -> Self {
        VerbsEnv { rereg, driver: PhantomData }
    }
}

impl<S: Make<cmid_verbs::Verbs>> Default for VerbsEnv<S> {
    fn default() -> Self {
        VerbsEnv::new()
    }
}

impl<S: Make<cmid_verbs::Verbs>> Devices for VerbsEnv<S> {
    type Device = cmid_verbs::Verbs;

    fn device(&self) -> Check<cmid_verbs::Verbs> {
        open_verbs().map_err(|error| Failure(error.to_string()))
    }

    fn bare_other_device(&self) -> Check<(cmid_verbs::Verbs, IpAddr)> {
        // rxe1, on a separate interface.
        Ok((self.device()?, Ipv4Addr::new(10, 98, 0, 1).into()))
    }
}

impl<S: Make<cmid_verbs::Verbs>> Env for VerbsEnv<S> {
    type Driver = S;

    fn driver(&self) -> Check<S> {
        S::make(self.device()?)
    }

    fn other_device(&self) -> Check<(S, IpAddr)> {
        let (device, address) = self.bare_other_device()?;
        Ok((S::make(device)?, address))
    }

    fn net(&self) -> Net {
        net()
    }

    fn fresh(&self) -> (u16, u32) {
        fresh()
    }

    fn transport(&self) -> Transport {
        guest::transport()
    }

    fn takes_unread_requests_along(&self) -> bool {
        super::backend() == cmid_verbs::Backend::Kernel
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn time_wait(&self) -> Duration {
        // 2.1 s on Linux 6.1, plus the delay of the emulated machine.
        Duration::from_millis(2500)
    }

    fn heap(&self) -> u64 {
        cmid_heap::allocated()
    }

    fn can(&self, what: Disturbance) -> bool {
        match what {
            Disturbance::SilentHost
            | Disturbance::NeighbourMoves
            | Disturbance::DeviceGoes
            | Disturbance::DeviceComes
            | Disturbance::ProcessDies
            | Disturbance::FailOver => true,
            // Debian's kernel is built without fault injection.
            Disturbance::MemoryFails => false,
        }
    }

    fn client_process(&self, there: SocketAddr) -> Check<Child> {
        guest::client_process(there)
    }

    fn disturb(&self, what: Disturbance) -> Check {
        match what {
            Disturbance::SilentHost => guest::silent_host(),
            Disturbance::NeighbourMoves => guest::move_neighbour(),
            Disturbance::DeviceGoes => guest::remove_device(),
            Disturbance::DeviceComes => guest::add_device(),
            Disturbance::FailOver => guest::fail_over(),
            Disturbance::ProcessDies => Err(Failure("kill the process of `client_process`".into())),
            Disturbance::MemoryFails => Err(Failure("this environment cannot make calls fail".into())),
        }
    }

    fn with_rereg(&self, rereg: Rereg) -> Option<Self> {
        (rereg == self.rereg).then(|| VerbsEnv::with(rereg))
    }
}
