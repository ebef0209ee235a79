//! A simulated host in real time.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::memory::Code;
use cmid_proto::{Errno, Transport};
use cmid_sim::{Clock, Config, Fabric, Host, Left, ReregFault, Resource, SimDevice};

use super::Devices;
use super::network::{fresh, net};
use crate::{Check, Disturbance, Env, Failure, Make, MemoryFault, Net, Rereg};

/// A simulated host in real time, because drivers wait for real descriptors, with the addresses 10.0.0.1 and 10.0.0.2.
#[must_use]
pub fn sim_host() -> Host {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    fabric.host(&[[10, 0, 0, 1].into(), [10, 0, 0, 2].into()])
}

/// A simulated host with two addresses on one device, as in the VM.
#[derive(Debug)]
pub struct SimEnv<S> {
    fabric: Fabric,
    config: Config,
    transport: Transport,
    host: Host,
    /// A host that can be resolved and has no listeners.
    silent: Host,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<SimDevice>> SimEnv<S> {
    /// Creates a fabric in real time, because drivers wait for real descriptors.
    #[must_use]
    pub fn new() -> Self {
        SimEnv::on(Config::default())
    }

    /// As [`SimEnv::new`], with iWARP devices.
    #[must_use]
    pub fn iwarp() -> Self {
        SimEnv::with(Config::default(), Transport::Iwarp)
    }

    /// As [`SimEnv::new`], with devices that copy received data to the memory when the completion is polled, without a
    /// key check. With `outlive`, completions stay in their CQ when the QP is destroyed.
    #[must_use]
    pub fn copying(outlive: bool) -> Self {
        let config = Config { copy_at_poll: true, completions_outlive_qp: outlive, ..Config::default() };
        SimEnv::on(Config { destroy_after_removal: true, ..config })
    }

    fn on(config: Config) -> Self {
        SimEnv::with(config, Transport::InfiniBand)
    }

    fn with(config: Config, transport: Transport) -> Self {
        let config = Config { clock: Clock::Real, ..config };
        let fabric = Fabric::new(config.clone());
        let host = fabric.host_with(&[net().client, net().server], transport);
        host.add_plain_addr_without_arp(net().no_rdma);
        let silent = fabric.host_with(&[net().silent], transport);
        SimEnv { fabric, config, transport, host, silent, driver: PhantomData }
    }
}

impl<S: Make<SimDevice>> Default for SimEnv<S> {
    fn default() -> Self {
        SimEnv::new()
    }
}

impl<S: Make<SimDevice>> Devices for SimEnv<S> {
    type Device = SimDevice;

    fn device(&self) -> Check<SimDevice> {
        Ok(self.host.device())
    }

    fn bare_other_device(&self) -> Check<(SimDevice, IpAddr)> {
        Ok((self.silent.device(), net().silent))
    }
}

impl<S: Make<SimDevice>> Env for SimEnv<S> {
    type Driver = S;

    fn driver(&self) -> Check<S> {
        S::make(self.device()?)
    }

    fn other_device(&self) -> Check<(S, IpAddr)> {
        let (device, address) = self.bare_other_device()?;
        Ok((S::make(device)?, address))
    }

    fn net(&self) -> Net {
        // One device has all addresses here, so its two addresses replace those of a bond.
        Net { bonded: [net().client, net().server], ..net() }
    }

    fn fresh(&self) -> (u16, u32) {
        fresh()
    }

    fn transport(&self) -> Transport {
        self.transport
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(60)
    }

    fn time_wait(&self) -> Duration {
        // The simulator's default is Linux 6.12: 0.53 s.
        Duration::from_millis(700)
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
            | Disturbance::FailOver
            | Disturbance::MemoryFails => true,
            // Not supported, because there is only one process. Dropping a device has the same effect.
            Disturbance::ProcessDies => false,
        }
    }

    fn disturb(&self, what: Disturbance) -> Check {
        match what {
            // The host can be resolved from the beginning.
            Disturbance::SilentHost => {}
            Disturbance::NeighbourMoves => self.silent.change_link_addr(),
            Disturbance::DeviceGoes => self.host.remove_device(),
            Disturbance::DeviceComes => self.host.add_device(),
            Disturbance::FailOver => self.host.fail_over(),
            Disturbance::ProcessDies => return Err(Failure("the simulator has no process to kill".into())),
            Disturbance::MemoryFails => return Err(Failure("use `fail_next` to select the call that fails".into())),
        }
        Ok(())
    }

    fn with_rereg(&self, rereg: Rereg) -> Option<Self> {
        let (rereg, new_keys_on_rereg) = match rereg {
            Rereg::No => (cmid_sim::Rereg::None, false),
            Rereg::PdAccess => (cmid_sim::Rereg::PdAccess, false),
            Rereg::All => (cmid_sim::Rereg::All, false),
            Rereg::NewKeys => (cmid_sim::Rereg::All, true),
        };
        let config = Config { rereg, new_keys_on_rereg, ..self.config.clone() };
        Some(SimEnv::with(config, self.transport))
    }

    fn sound(&self) -> Check {
        let copied = self.fabric.counters().copied_to_freed;
        if copied == 0 {
            Ok(())
        } else {
            Err(Failure(format!("polls wrote to memory after its deregistration: {copied}")))
        }
    }

    fn fail_next(&self, fault: MemoryFault) -> Check {
        let (code, errno, left) = match fault {
            MemoryFault::Register(errno) => {
                self.host.fail_next_creation(Resource::Mr, errno);
                return Ok(());
            }
            MemoryFault::Deregister(errno) => {
                self.host.fail_next_deregistration(errno);
                return Ok(());
            }
            // The errno of madvise(2) for unmapped memory.
            MemoryFault::DontForkNew => (Code::DontForkNew, Errno::ENOMEM, Left::Old),
            MemoryFault::DoForkOld => (Code::DoForkOld, Errno::ENOMEM, Left::Old),
            MemoryFault::Untouched(errno) => (Code::Cmd, errno, Left::Old),
            MemoryFault::Lost(errno) => (Code::Cmd, errno, Left::Neither),
            MemoryFault::LostAndPdSwitched(errno) => (Code::Cmd, errno, Left::NeitherAndPdSwitched),
            MemoryFault::LostAndDoForkNew(errno) => (Code::CmdAndDoForkNew, errno, Left::Neither),
            MemoryFault::Undocumented => (Code::Unknown(-6), Errno::EIO, Left::Neither),
        };
        self.host.fail_next_reregistration(ReregFault { code, errno, left });
        Ok(())
    }
}
