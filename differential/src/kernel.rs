//! Programs on the kernel of this machine: soft-RoCE as the project's VM sets it up.
//!
//! Many run at once, one group of steps each, in turn; after each turn a lookup of nobody's port goes through the kernel. It
//! takes the same queues as everything before it: addresses, routes, the connection manager's messages and their
//! answers. When it is over, so is all that the steps have set going.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cmid_proto::{Call, ChannelKey, CmEvent, ConnParam, Device, IdKey, Pollable, PortSpace};
use cmid_sim::Flavour;
use cmid_verbs::Verbs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::judge::{Reality, Run};
use crate::program::{Action, Numbers, PORTS, Program, QP_NUMS, Step};
use crate::simulated::pause;
use crate::stage::{EPILOGUE, Stages};

/// The first port that is given out; the last comes before the ephemeral ones.
const FIRST_PORT: u16 = 20_000;
/// The port after the last that is given out.
const END_PORT: u16 = 32_000;
/// QP numbers that no device here hands out.
const FIRST_QP_NUM: u32 = 0x40_0000;
/// Where they begin anew. There is time enough in between for every time wait.
const END_QP_NUM: u32 = 0xf0_0000;

/// The kernel.
#[derive(Debug)]
pub struct Kernel {
    flavour: Flavour,
    probe: Probe,
    port: u16,
    qp_num: u32,
}

impl Kernel {
    /// The kernel of this machine, with the timers of that version.
    ///
    /// # Errors
    /// If there is no RDMA device.
    pub fn open(flavour: Flavour) -> anyhow::Result<Self> {
        let device = Verbs::open().map_err(|errno| anyhow::anyhow!("{errno}")).context("an RDMA device")?;
        Ok(Kernel { flavour, probe: Probe::new(device)?, port: FIRST_PORT, qp_num: FIRST_QP_NUM })
    }

    fn numbers(&mut self) -> Numbers {
        let numbers = Numbers { port: self.port, qp_num: self.qp_num };
        self.port = if self.port + 2 * PORTS > END_PORT { FIRST_PORT } else { self.port + PORTS };
        self.qp_num = if self.qp_num + 2 * QP_NUMS > END_QP_NUM { FIRST_QP_NUM } else { self.qp_num + QP_NUMS };
        numbers
    }
}

impl Reality for Kernel {
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>> {
        let mut all: Vec<Playing<'_>> = Vec::new();
        for program in programs {
            let numbers = self.numbers();
            all.push(Playing::new(program, numbers, self.probe.device.sibling(), self.probe.device.sibling()));
        }
        loop {
            let mut played = false;
            for one in &mut all {
                played |= one.play_group();
            }
            if played {
                self.probe.settle()?;
            } else if all.iter().any(Playing::is_waiting) {
                sleep(pause(self.flavour));
                self.probe.settle()?;
                all.iter_mut().for_each(Playing::go_on);
            } else {
                break;
            }
        }
        for part in 0..EPILOGUE {
            for one in &mut all {
                one.stages.epilogue(one.at, part);
            }
            self.probe.settle()?;
        }
        Ok(all.into_iter().map(Playing::end).collect())
    }

    fn flavour(&self) -> Flavour {
        self.flavour
    }
}

/// A program that is being run.
struct Playing<'a> {
    groups: std::vec::IntoIter<&'a [Step]>,
    stages: Stages,
    numbers: Numbers,
    at: usize,
    waiting: bool,
    began: Instant,
    phase_began: Instant,
    phases: Vec<Duration>,
}

impl<'a> Playing<'a> {
    #[allow(clippy::disallowed_methods, reason = "a kernel's time is the real one")]
    fn new(program: &'a Program, numbers: Numbers, a: Verbs, b: Verbs) -> Self {
        let now = Instant::now();
        Playing {
            groups: program.groups().into_iter(),
            stages: Stages::new(program, numbers, a, b),
            numbers,
            at: 0,
            waiting: false,
            began: now,
            phase_began: now,
            phases: Vec::new(),
        }
    }

    /// Plays a group; whether there was one.
    fn play_group(&mut self) -> bool {
        if self.waiting {
            return false;
        }
        let Some(group) = self.groups.next() else { return false };
        if self.at == 0 {
            (self.began, self.phase_began) = (Instant::now(), Instant::now());
        }
        for step in group {
            if step.action == Action::LetTimePass {
                self.phases.push(self.phase_began.elapsed());
                self.waiting = true;
            } else {
                self.stages.perform(self.at, step);
            }
            self.at += 1;
        }
        true
    }

    fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn go_on(&mut self) {
        if std::mem::take(&mut self.waiting) {
            self.phase_began = Instant::now();
        }
    }

    fn end(mut self) -> Run {
        self.phases.push(self.phase_began.elapsed());
        Run {
            numbers: self.numbers,
            trace: self.stages.trace(),
            told: self.stages.told(),
            phases: self.phases,
            whole: self.began.elapsed(),
        }
    }
}

/// Looks up a port that nobody listens on.
#[derive(Debug)]
struct Probe {
    device: Verbs,
    channel: ChannelKey,
    generation: u32,
}

/// No answer of the kernel takes so long.
const LIMIT: Duration = Duration::from_secs(20);

impl Probe {
    fn new(mut device: Verbs) -> anyhow::Result<Self> {
        let channel = ChannelKey::from_parts(0, 0, 1).context("a key")?;
        device.call(&Call::OpenChannel { channel }, &[]).context("a channel")?;
        Ok(Probe { device, channel, generation: 0 })
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        self.generation += 1;
        let id = IdKey::from_parts(0, 0, self.generation).context("a key")?;
        let dst = SocketAddr::from((Ipv4Addr::new(10, 99, 0, 2), FIRST_PORT - 1));
        let on = self.channel;
        let device = &mut self.device;
        device.call(&Call::CreateId { id, channel: on, port_space: PortSpace::Udp }, &[]).context("probe: create")?;
        device.call(&Call::ResolveAddr { id, src: None, dst, timeout_ms: 20_000 }, &[]).context("probe: address")?;
        self.expect(CmEvent::AddrResolved)?;
        self.device.call(&Call::ResolveRoute { id, timeout_ms: 20_000 }, &[]).context("probe: route")?;
        self.expect(CmEvent::RouteResolved)?;
        self.device.call(&Call::Connect { id, param: ConnParam::default() }, &[]).context("probe: connect")?;
        self.expect(CmEvent::Unreachable)?;
        self.device.call(&Call::Destroy { id }, &[]).context("probe: destroy")
    }

    fn expect(&mut self, kind: CmEvent) -> anyhow::Result<()> {
        let spare = IdKey::from_parts(0, 1, 1).context("a key")?;
        let fd = self.device.fd(self.channel).context("a descriptor")?;
        let limit = Timespec::try_from(LIMIT)?;
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit))?;
        let event = self.device.fetch(self.channel, spare)?.with_context(|| format!("probe: no {kind}"))?;
        ensure!(event.kind == kind, "probe: {} with {} instead of {kind}", event.kind, event.status);
        Ok(())
    }
}
