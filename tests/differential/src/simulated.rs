//! Runs a program on the simulator, in virtual time, under a schedule.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::datapath::DataPath;
use cmid_sim::{Config, Fabric, Flavour, SimDevice};

use crate::address::{Endpoint, Ip, LINK_LOCAL, Numbers};
use crate::program::{Action, Program};
use crate::runner::{BeforeRead, Observed};
use crate::runners::{EPILOGUE, Runners};
use crate::trace::Trace;

/// After this time, only timers are pending.
const SETTLE: Duration = Duration::from_millis(1);

/// The delays at a boundary inside a group. In order: nothing has happened; the first message has arrived; its answer
/// has arrived; all effects are complete.
const DELAYS: [Duration; 4] = [Duration::ZERO, Duration::from_micros(14), Duration::from_micros(28), SETTLE];

/// Distinguishes a time-out from a time wait by its length.
const SHORT: Duration = Duration::from_millis(3000);

/// The length of [`Action::LetTimePass`]: longer than the time wait of that kernel. Its timers are late by up to an
/// eighth of their length (the wheel of `kernel/time/timer.c`).
#[must_use]
pub const fn pause(flavour: Flavour) -> Duration {
    match flavour {
        Flavour::Linux6_1 => Duration::from_millis(2600),
        Flavour::Linux6_12 => Duration::from_millis(750),
    }
}

/// The maximum durations of a comparable run: the times at which timers end that the simulator had running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For each part of the program between two [`Action::LetTimePass`], from its beginning.
    pub phases: Vec<Option<Duration>>,
    /// From the program's beginning.
    pub whole: Option<Duration>,
}

/// The result of a simulated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// The observations of the sides.
    pub trace: Trace,
    /// The durations beyond which another run is too slow to be compared.
    pub limits: Limits,
    /// Counts that are not part of the trace.
    pub observed: Observed,
    /// Calls that would have blocked in a kernel, for 70 seconds or until an answer came, invalidations of windows that
    /// are not bound, which soft-RoCE's kernel does not survive (hazard P43), and requests that race with the end of a
    /// connection.
    pub stalls: u64,
    /// [`cmid_sim::Counters::time_waits_in_turn`] after the last [`Action::LetTimePass`]. Later time waits do not
    /// end, except in a [late](Schedule::late) run.
    pub time_waits_in_turn: u32,
    /// The number of reads in a step that had sent something since it began, or since its last such read.
    pub sends: u32,
}

/// The choices that a program leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The delay at each boundary inside groups. At missing ones all effects are complete.
    pub delays: Vec<Duration>,
    /// Which time waits end in the same tick as the one before ([`Config::time_waits_of_one_tick`]).
    pub ticks: u64,
    /// Which messages of a step arrive before the step reads: none, one, or all.
    pub prompt: Prompt,
    /// In a run that is slower than its timers: the number of steps, those of the epilogue too, after which so much time
    /// passes.
    pub late: Option<(usize, Duration)>,
}

/// Messages that arrive during the step that sends them.
///
/// The kernel's workers deliver a message when the scheduler runs them: between two reads of a step, or after it. An
/// id that is connected to its own side shows the difference (seed 114348).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// All arrive after the step.
    #[default]
    None,
    /// The message of this number, counted from the program's beginning.
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
    /// The same schedule with all other orders of the time waits.
    ///
    /// `in_turn` is [`Simulated::time_waits_in_turn`]. Time waits beyond `TICKS_MAX` end in the order in which they
    /// began.
    pub fn other_orders(&self, in_turn: u32) -> impl Iterator<Item = Schedule> {
        let most = (1 << in_turn.min(TICKS_MAX)) - 1;
        // In a run without other programs, all are of one tick.
        (1..=most).rev().map(|ticks| Schedule { ticks, ..self.clone() })
    }

    /// The same schedule in a run of so many steps that has taken `whole`, with the timers ending after any one of them.
    pub fn late(&self, steps: usize, whole: Duration) -> impl Iterator<Item = Schedule> {
        (1..steps + EPILOGUE).map(move |late| Schedule { late: Some((late, whole)), ..self.clone() })
    }

    /// The same schedule with messages that arrive during their step; `sends` is [`Simulated::sends`].
    pub fn prompt(&self, sends: u32) -> impl Iterator<Item = Schedule> {
        let some = (0..sends).map(Prompt::One).chain((sends > 1).then_some(Prompt::All));
        some.map(|prompt| Schedule { prompt, ..self.clone() })
    }
}

/// The maximum number for which all orders can be tried.
const TICKS_MAX: u32 = 8;

/// All choices for the boundaries of a program. The first is the one in which everything completes. Time waits end in
/// the order in which they begin.
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

/// Runs a program on devices that wrap the simulator's.
#[must_use]
pub fn simulate_on<D: DataPath + 'static>(
    program: &Program,
    numbers: Numbers,
    flavour: Flavour,
    schedule: &Schedule,
    wrap: impl Fn(SimDevice) -> D,
) -> Simulated {
    // Like a fresh poll of the kernel; see docs/generated/differences.md.
    let fabric = Fabric::new(Config {
        flavour,
        wake_on_migrate: true,
        completions_outlive_qp: true,
        windows_without_range: true,
        copies_late: program.network.is_roce(),
        time_waits_of_one_tick: schedule.ticks,
        ..Config::default()
    });
    let [a, b, a6, b6, other] =
        [Ip::OfA, Ip::OfB, Ip::OfA6, Ip::OfB6, Ip::OfOther].map(|ip| Endpoint(ip, 0).resolve(numbers).ip());
    // The VM has another device (`xtask/vm/src/lib.rs`).
    let devices: [&[IpAddr]; 2] = [&[a, b, a6, b6, LINK_LOCAL.into()], &[other]];
    let host = fabric.host_with_devices(&devices, program.network.transport());
    host.add_plain_addr_without_arp(Ipv4Addr::new(172, 16, 0, 1).into());
    let (sent, sends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let before_read = before_read(&fabric, schedule.prompt, &sent, &sends);
    let mut runners = Runners::new(program, numbers, wrap(host.device()), wrap(host.device()), &before_read);
    let mut run = Watch::new(&fabric);
    let after = |steps| schedule.late.filter(|&(late, _)| late == steps).map_or(SETTLE, |(_, whole)| whole);
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
        fabric.advance_by(after(at));
        run.look(&fabric);
    }
    for part in 0..EPILOGUE {
        sent.set(fabric.counters().sent);
        runners.epilogue(at, part);
        fabric.advance_by(after(at + 1 + part));
        run.look(&fabric);
    }
    let counters = fabric.counters();
    if schedule.late.is_some() {
        time_waits_in_turn = counters.time_waits_in_turn;
    }
    let stalls = counters.stalls + counters.waits_for_answer + counters.unbound_invalidated + counters.after_end;
    Simulated {
        trace: runners.trace(),
        limits: run.limits,
        observed: runners.observed(),
        stalls,
        time_waits_in_turn,
        sends: sends.get(),
    }
}

/// Lets the messages of the step arrive, if the schedule requires it.
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

/// Records the running timers.
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
        // A long timer may have been started in an earlier phase. Counting from the beginning is then safe.
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
