//! A program on the simulator, in virtual time, under a schedule.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use cmid_datapath::DataPath;
use cmid_proto::Time;
use cmid_sim::{Config, Fabric, Flavour, SimDevice};

use crate::program::{Action, Endpoint, Ip, LINK_LOCAL, Numbers, Program};
use crate::runner::{BeforeRead, EPILOGUE, Observed, Runners};
use crate::trace::Trace;

/// After a group of steps everything happens that is not waiting for a timer.
const SETTLE: Duration = Duration::from_millis(1);

/// What may have happened at a boundary inside a group: nothing; the first message has arrived; its answer too; all.
const DELAYS: [Duration; 4] = [Duration::ZERO, Duration::from_micros(14), Duration::from_micros(28), SETTLE];

/// A time-out is told from a time wait by its length.
const SHORT: Duration = Duration::from_millis(3000);

/// How long [`Action::LetTimePass`] takes: longer than the time wait of that kernel. Its timers are late by up to an
/// eighth of their length (the wheel of `kernel/time/timer.c`).
#[must_use]
pub const fn pause(flavour: Flavour) -> Duration {
    match flavour {
        Flavour::Linux6_1 => Duration::from_millis(2600),
        Flavour::Linux6_12 => Duration::from_millis(750),
    }
}

/// What is to be ready before a run's steps may take so long: a timer that the simulator had still running at their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For each part of the program between two [`Action::LetTimePass`], from its beginning.
    pub phases: Vec<Option<Duration>>,
    /// From the program's beginning.
    pub whole: Option<Duration>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// What the sides have seen.
    pub trace: Trace,
    /// When another run is too slow to be compared with this one.
    pub limits: Limits,
    /// What else the sides have to say.
    pub observed: Observed,
    /// Destroys that would have taken a kernel 70 seconds.
    pub stalls: u64,
    /// [`cmid_sim::Counters::time_waits_in_turn`] after the last [`Action::LetTimePass`]. Later time waits do not end.
    pub time_waits_in_turn: u32,
    /// Reads of a step that had sent something since it began, or since its last such read.
    pub sends: u32,
}

/// What a program leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// What has happened at each boundary inside groups; everything at those that are missing.
    pub delays: Vec<Duration>,
    /// Which time waits end in the same tick as the one before ([`Config::time_waits_of_one_tick`]).
    pub ticks: u64,
    /// Which message that a step sends arrives before that step goes on to read; none, one, or every one.
    pub prompt: Prompt,
}

/// Messages that arrive while the step that sends them goes on.
///
/// The kernel's workers deliver a message when the scheduler lets them: between two reads of a step, or after it. An id that
/// is connected to its own side shows the difference (seed 1669990).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// All arrive when the step is over.
    #[default]
    None,
    /// That one, counted from the program's beginning.
    One(u32),
    /// All arrive at once.
    All,
}

impl Prompt {
    const fn includes(self, number: u32) -> bool {
        match self {
            Prompt::None => false,
            Prompt::One(one) => one == number,
            Prompt::All => true,
        }
    }
}

impl Schedule {
    /// The same with the time waits in all orders, without the one that it has.
    ///
    /// `in_turn` is [`Simulated::time_waits_in_turn`]. Of more than `TICKS_MAX` the rest end in the order in which they
    /// began.
    pub fn other_orders(&self, in_turn: u32) -> impl Iterator<Item = Schedule> {
        let most = (1 << in_turn.min(TICKS_MAX)) - 1;
        // In a run without company all are of one tick.
        (1..=most).rev().map(|ticks| Schedule { ticks, ..self.clone() })
    }

    /// The same with messages that arrive while their step goes on; `sends` is [`Simulated::sends`].
    pub fn prompt(&self, sends: u32) -> impl Iterator<Item = Schedule> {
        let some = (0..sends).map(Prompt::One).chain((sends > 1).then_some(Prompt::All));
        some.map(|prompt| Schedule { prompt, ..self.clone() })
    }
}

/// As many as a judge can try all orders of.
const TICKS_MAX: u32 = 8;

/// All choices for the boundaries of a program; the one in which everything settles comes first. Time waits end in the
/// order in which they begin.
#[must_use]
pub fn schedules(program: &Program) -> Vec<Schedule> {
    let mut all = vec![Vec::new()];
    for _ in 0..program.boundaries() {
        let longer =
            |delay: Duration| all.iter().map(move |one: &Vec<Duration>| one.iter().copied().chain([delay]).collect());
        all = DELAYS.iter().rev().flat_map(|&delay| longer(delay)).collect();
    }
    all.into_iter().map(|delays| Schedule { delays, ..Schedule::default() }).collect()
}

/// Runs a program.
#[must_use]
pub fn simulate(program: &Program, numbers: Numbers, flavour: Flavour, schedule: &Schedule) -> Simulated {
    simulate_on(program, numbers, flavour, schedule, |device| device)
}

/// Runs a program on devices that are made of the simulator's.
#[must_use]
pub fn simulate_on<D: DataPath>(
    program: &Program,
    numbers: Numbers,
    flavour: Flavour,
    schedule: &Schedule,
    wrap: impl Fn(SimDevice) -> D,
) -> Simulated {
    // As a fresh poll of the kernel's has it; see docs/generated/differences.md.
    let fabric = Fabric::new(Config {
        flavour,
        wake_on_migrate: true,
        completions_outlive_qp: true,
        time_waits_of_one_tick: schedule.ticks,
        ..Config::default()
    });
    let [a, b, a6, b6] = [Ip::OfA, Ip::OfB, Ip::OfA6, Ip::OfB6].map(|ip| Endpoint(ip, 0).resolve(numbers).ip());
    let host = fabric.host(&[a, b, a6, b6, LINK_LOCAL.into()]);
    host.add_plain_addr_without_arp(Ipv4Addr::new(172, 16, 0, 1).into());
    let (sent, sends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let before_read = before_read(&fabric, schedule.prompt, &sent, &sends);
    let mut runners = Runners::new(program, numbers, wrap(host.device()), wrap(host.device()), &before_read);
    let mut run = Watch::new(&fabric);
    let (mut at, mut delays, mut time_waits_in_turn) = (0, schedule.delays.iter(), 0);
    for group in program.groups() {
        for (index, step) in group.iter().enumerate() {
            if index > 0 {
                fabric.advance_by(delays.next().copied().unwrap_or(SETTLE));
            }
            if step.action == Action::LetTimePass {
                fabric.advance_by(pause(flavour));
                time_waits_in_turn = fabric.counters().time_waits_in_turn;
                run.next_phase(&fabric);
            } else {
                sent.set(fabric.counters().sent);
                runners.perform(at, step);
            }
            at += 1;
        }
        fabric.advance_by(SETTLE);
        run.look(&fabric);
    }
    for part in 0..EPILOGUE {
        sent.set(fabric.counters().sent);
        runners.epilogue(at, part);
        fabric.advance_by(SETTLE);
        run.look(&fabric);
    }
    let stalls = fabric.counters().stalls;
    Simulated {
        trace: runners.trace(),
        limits: run.limits,
        observed: runners.observed(),
        stalls,
        time_waits_in_turn,
        sends: sends.get(),
    }
}

/// Lets what the step has sent arrive, if the schedule says so.
fn before_read(fabric: &Fabric, prompt: Prompt, sent: &Rc<Cell<u64>>, sends: &Rc<Cell<u32>>) -> BeforeRead {
    let (fabric, sent, sends) = (fabric.clone(), Rc::clone(sent), Rc::clone(sends));
    Rc::new(move || {
        if fabric.counters().sent == sent.get() {
            return;
        }
        if prompt.includes(sends.get()) {
            fabric.advance_by(SETTLE);
        }
        sends.set(sends.get() + 1);
        sent.set(fabric.counters().sent);
    })
}

/// Notes the timers that are still running.
struct Watch {
    began: Time,
    phase_began: Time,
    limits: Limits,
}

impl Watch {
    fn new(fabric: &Fabric) -> Self {
        let now = fabric.now();
        Watch { began: now, phase_began: now, limits: Limits { phases: vec![None], whole: None } }
    }

    fn next_phase(&mut self, fabric: &Fabric) {
        self.phase_began = fabric.now();
        self.limits.phases.push(None);
    }

    fn look(&mut self, fabric: &Fabric) {
        let Some(due) = fabric.next_due() else { return };
        // A long one may have been started in an earlier phase; counting from the beginning is then on the safe side.
        let (limit, since) = if due.since(fabric.now()) > SHORT {
            (Some(&mut self.limits.whole), self.began)
        } else {
            (self.limits.phases.last_mut(), self.phase_began)
        };
        if let Some(limit) = limit {
            let span = due.since(since);
            *limit = Some(limit.map_or(span, |limit| limit.min(span)));
        }
    }
}
