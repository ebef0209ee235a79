//! A simulated host in real time.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::Errno;
use cmid_sim::{Clock, Config, Fabric, Host, Left, ReregFault, SimDevice};

use super::{Devices, fresh, net};
use crate::{Check, Disturbance, Env, Failure, Make, MemoryFault, Net, Rereg};

/// A simulated host with two addresses, as a kernel with one device has them.
#[derive(Debug)]
pub struct SimLab<S> {
    fabric: Fabric,
    config: Config,
    host: Host,
    /// Resolvable, and without anybody who takes requests.
    silent: Host,
    driver: PhantomData<fn() -> S>,
}

impl<S: Make<SimDevice>> SimLab<S> {
    /// A fresh fabric, in real time, because drivers wait for real descriptors.
    #[must_use]
    pub fn new() -> Self {
        SimLab::on(Config::default())
    }

    /// As [`SimLab::new`], with devices that copy what has arrived when it is polled and check no key. `outlive`: completions stay
    /// in their CQ when the QP is destroyed.
    #[must_use]
    pub fn copying(outlive: bool) -> Self {
        let config = Config { copy_at_poll: true, completions_outlive_qp: outlive, ..Config::default() };
        SimLab::on(Config { destroy_after_removal: true, ..config })
    }

    /// The host that drivers are on.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    fn on(config: Config) -> Self {
        let config = Config { clock: Clock::Real, ..config };
        let fabric = Fabric::new(config.clone());
        let host = fabric.host(&[net().client, net().server]);
        host.add_plain_addr_without_arp(net().no_rdma);
        let silent = fabric.host(&[net().silent]);
        SimLab { fabric, config, host, silent, driver: PhantomData }
    }
}

impl<S: Make<SimDevice>> Default for SimLab<S> {
    fn default() -> Self {
        SimLab::new()
    }
}

impl<S: Make<SimDevice>> Devices for SimLab<S> {
    type Device = SimDevice;

    fn device(&self) -> Check<SimDevice> {
        Ok(self.host.device())
    }

    fn bare_other_device(&self) -> Check<(SimDevice, IpAddr)> {
        Ok((self.silent.device(), net().silent))
    }
}

impl<S: Make<SimDevice>> Env for SimLab<S> {
    type Driver = S;

    fn driver(&self) -> Check<S> {
        S::make(self.device()?)
    }

    fn other_device(&self) -> Check<(S, IpAddr)> {
        let (device, address) = self.bare_other_device()?;
        Ok((S::make(device)?, address))
    }

    fn net(&self) -> Net {
        // One device has all addresses here, so its own two stand for those on a bond.
        Net { bonded: [net().client, net().server], ..net() }
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
            // There is one process. To drop a device is what its end would be.
            Disturbance::ProcessDies => false,
        }
    }

    fn disturb(&self, what: Disturbance) -> Check {
        match what {
            // It answers from the beginning.
            Disturbance::SilentHost => {}
            Disturbance::NeighbourMoves => self.silent.change_link_addr(),
            Disturbance::DeviceGoes => self.host.remove_device(),
            Disturbance::DeviceComes => self.host.add_device(),
            Disturbance::FailOver => self.host.fail_over(),
            Disturbance::ProcessDies => return Err(Failure("there is no process to be killed".into())),
            Disturbance::MemoryFails => return Err(Failure("which call is to fail?".into())),
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
        // What goes wrong at a fork is to be seen as well.
        Some(SimLab::on(Config { rereg, new_keys_on_rereg, fork: true, ..self.config.clone() }))
    }

    fn sound(&self) -> Check {
        let copied = self.fabric.counters().copied_to_freed;
        if copied == 0 { Ok(()) } else { Err(Failure(format!("polls wrote to memory that was given back: {copied}"))) }
    }

    fn fail_next(&self, fault: MemoryFault) -> Check {
        let rereg = match fault {
            MemoryFault::Register(errno) => {
                self.host.fail_next_registration(errno);
                return Ok(());
            }
            MemoryFault::Deregister(errno) => {
                self.host.fail_next_deregistration(errno);
                return Ok(());
            }
            // madvise(2) of what is not mapped.
            MemoryFault::DontForkNew => ReregFault::DontForkNew(Errno::ENOMEM),
            MemoryFault::DoForkOld => ReregFault::DoForkOld(Errno::ENOMEM),
            MemoryFault::Untouched(errno) => ReregFault::Cmd { errno, left: Left::Old },
            MemoryFault::Lost(errno) => ReregFault::Cmd { errno, left: Left::Neither },
            MemoryFault::LostAndPdSwitched(errno) => ReregFault::Cmd { errno, left: Left::NeitherAndPdSwitched },
            MemoryFault::LostAndDoForkNew(errno) => ReregFault::CmdAndDoForkNew { errno, left: Left::Neither },
            MemoryFault::Undocumented => ReregFault::Undocumented { code: -6, errno: Errno::EIO, left: Left::Neither },
        };
        self.host.fail_next_reregistration(rereg);
        Ok(())
    }
}
