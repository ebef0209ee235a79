//! Runs programs on the kernel of this machine: soft-RoCE or soft-iWARP as set up in the project's VM.
//!
//! Many programs run at once, one group of steps each, in turn. After each turn follows a request of the probe, on
//! soft-RoCE the lookup of a port without a listener. It uses the same queues as everything before it: addresses,
//! routes, the connection manager's messages and their answers. When it is complete, all effects of the steps are
//! complete too. A program that lets time pass, or has ended, does not delay the others.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cmid_sim::Flavour;
use cmid_verbs::{Backend, Verbs};

use crate::address::{LINK_LOCAL, Numbers, PORTS, QP_NUMS};
use crate::data_step::DataStep;
use crate::judge::{Reality, Run};
use crate::probe::Probe;
use crate::program::{Action, IdCall, Network, Program, Step};
use crate::runner::BeforeRead;
use crate::runners::{EPILOGUE, Runners};
use crate::simulated::pause;

/// The first port that programs use.
const FIRST_PORT: u16 = 20_000;
/// The end of the ports that programs use, before the ephemeral ones.
const END_PORT: u16 = 32_000;
/// The first QP number, outside of those that the devices assign.
const FIRST_QP_NUM: u32 = 0x40_0000;
/// The end of the QP numbers. Before they are reused, every time wait is over.
const END_QP_NUM: u32 = 0xf0_0000;

/// Longer than work requests take, which the lookup does not wait for.
const WORK: Duration = Duration::from_millis(10);

/// The maximum number of queues of concurrent programs on soft-iWARP, besides those of the probe: libsiw takes the key
/// of the 145th that a process maps for an invalid one (`SIW_INVAL_UOBJ_KEY`).
const QUEUES_ON_IWARP: usize = 120;

/// The kernel.
#[derive(Debug)]
pub struct Kernel {
    flavour: Flavour,
    probe: Probe,
    queues_max: usize,
    port: u16,
    qp_num: u32,
    link: u32,
    drops_errnos: bool,
}

impl Kernel {
    /// Opens the kernel of this machine, with the timers of that version.
    ///
    /// # Errors
    /// There is no RDMA device.
    pub fn open(flavour: Flavour, backend: Backend, network: Network) -> anyhow::Result<Self> {
        let device = Verbs::open_with(backend).context("an RDMA device")?;
        Ok(Kernel {
            flavour,
            probe: Probe::new(device, network)?,
            queues_max: if network == Network::Iwarp { QUEUES_ON_IWARP } else { usize::MAX },
            port: FIRST_PORT,
            qp_num: FIRST_QP_NUM,
            link: link()?,
            drops_errnos: backend == Backend::Librdmacm && network != Network::Iwarp,
        })
    }

    fn numbers(&mut self) -> Numbers {
        let numbers = Numbers { port: self.port, qp_num: self.qp_num, link: self.link };
        self.port = if self.port + 2 * PORTS > END_PORT { FIRST_PORT } else { self.port + PORTS };
        self.qp_num = if self.qp_num + 2 * QP_NUMS > END_QP_NUM { FIRST_QP_NUM } else { self.qp_num + QP_NUMS };
        numbers
    }
}

impl Reality for Kernel {
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>> {
        let pause = pause(self.flavour);
        let mut all: Vec<Playing<'_>> = Vec::new();
        let has_data = programs
            .iter()
            .flat_map(|program| &program.steps)
            .any(|step| matches!(step.action, Action::On(_, IdCall::Data(_))));
        for program in programs {
            let numbers = self.numbers();
            all.push(Playing::new(program, numbers, self.probe.sibling(), self.probe.sibling()));
        }
        while all.iter().any(Playing::is_on) {
            let (mut played, mut queues) = (false, 0);
            for one in all.iter_mut().filter(|one| one.is_on()) {
                queues += one.queues;
                if queues > self.queues_max {
                    break;
                }
                played |= one.play(pause);
            }
            if !played {
                sleep(all.iter().filter_map(Playing::sleeps_for).min().unwrap_or_default());
            }
            self.probe.settle()?;
            if has_data {
                sleep(WORK);
            }
        }
        Ok(all.into_iter().map(|one| one.end(self.drops_errnos)).collect())
    }

    fn flavour(&self) -> Flavour {
        self.flavour
    }
}

/// The index of the interface with [`LINK_LOCAL`], once the kernel has checked that the address is unique.
fn link() -> anyhow::Result<u32> {
    let address: String = LINK_LOCAL.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    for _ in 0..100 {
        // Address, index, length of the prefix, scope, flags, name; all but the name in hexadecimal (proc(5)).
        let all = std::fs::read_to_string("/proc/net/if_inet6").context("/proc/net/if_inet6")?;
        let line = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|line| line[0] == address);
        let line = line.with_context(|| format!("no interface has {LINK_LOCAL}"))?;
        if let [_, index, _, _, flags, ..] = line[..]
            && u32::from_str_radix(flags, 16)? & TENTATIVE == 0
        {
            return Ok(u32::from_str_radix(index, 16)?);
        }
        sleep(Duration::from_millis(100));
    }
    anyhow::bail!("{LINK_LOCAL} stays tentative")
}

/// `IFA_F_TENTATIVE`
const TENTATIVE: u32 = 0x40;

/// The next action of a program.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Its next group of steps.
    Group,
    /// Wait until then.
    Wait(Instant),
    /// A part of the end, out of [`EPILOGUE`].
    Epilogue(usize),
    Nothing,
}

/// A running program.
struct Playing<'a> {
    /// The maximum number of queues that it maps: two of a QP, and those of CQs and SRQs.
    queues: usize,
    groups: std::vec::IntoIter<&'a [Step]>,
    runners: Runners,
    numbers: Numbers,
    at: usize,
    next: Next,
    began: Instant,
    phase_began: Instant,
    phases: Vec<Duration>,
    whole: Duration,
}

#[allow(clippy::disallowed_methods, reason = "a kernel's time is the real one")]
impl<'a> Playing<'a> {
    fn new(program: &'a Program, numbers: Numbers, a: Verbs, b: Verbs) -> Self {
        let now = Instant::now();
        let queues = |step: &Step| match step.action {
            Action::On(_, IdCall::AttachQp | IdCall::AttachHugeQp) => 3,
            Action::On(_, IdCall::Data(DataStep::Attach { .. })) => 5,
            Action::On(..)
            | Action::OpenChannel { .. }
            | Action::CloseChannel(_)
            | Action::Create { .. }
            | Action::Turn
            | Action::Read { .. }
            | Action::Ack(_)
            | Action::LetTimePass => 0,
        };
        Playing {
            queues: program.steps.iter().map(queues).sum(),
            groups: program.groups().into_iter(),
            runners: Runners::new(program, numbers, a, b, &(Rc::new(|| {}) as BeforeRead)),
            numbers,
            at: 0,
            next: Next::Group,
            began: now,
            phase_began: now,
            phases: Vec::new(),
            whole: Duration::ZERO,
        }
    }

    /// Performs the next action. Returns whether there was one. A wait takes `pause`.
    fn play(&mut self, pause: Duration) -> bool {
        match self.next {
            Next::Wait(until) if Instant::now() >= until => {
                self.phase_began = Instant::now();
                self.play_group(pause);
            }
            Next::Group => self.play_group(pause),
            Next::Epilogue(part) => self.play_epilogue(part),
            Next::Wait(_) | Next::Nothing => return false,
        }
        true
    }

    fn play_group(&mut self, pause: Duration) {
        let Some(group) = self.groups.next() else { return self.play_epilogue(0) };
        if self.at == 0 {
            (self.began, self.phase_began) = (Instant::now(), Instant::now());
        }
        self.next = Next::Group;
        for step in group {
            if step.action == Action::LetTimePass {
                self.phases.push(self.phase_began.elapsed());
                self.next = Next::Wait(Instant::now() + pause);
            } else {
                self.runners.perform(self.at, step);
            }
            self.at += 1;
        }
    }

    fn play_epilogue(&mut self, part: usize) {
        self.runners.epilogue(self.at, part);
        self.next = Next::Epilogue(part + 1);
        if part + 1 == EPILOGUE {
            self.next = Next::Nothing;
            self.phases.push(self.phase_began.elapsed());
            self.whole = self.began.elapsed();
        }
    }

    fn is_on(&self) -> bool {
        !matches!(self.next, Next::Nothing)
    }

    fn sleeps_for(&self) -> Option<Duration> {
        match self.next {
            Next::Wait(until) => Some(until.saturating_duration_since(Instant::now())),
            Next::Group | Next::Epilogue(_) | Next::Nothing => None,
        }
    }

    fn end(self, drops_errnos: bool) -> Run {
        Run {
            numbers: self.numbers,
            trace: self.runners.trace(),
            observed: self.runners.observed(),
            drops_errnos,
            phases: self.phases,
            whole: self.whole,
        }
    }
}
