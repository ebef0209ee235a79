//! Worlds: whole programs on hosts of a fabric, in virtual time, under faults, by seed.

mod chaos;
mod chart;
mod check;
mod coverage;
mod disk;
mod hosts;
mod program;
mod task;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cmid_proto::Time;

pub use chaos::Fault;
pub use check::{Failure, Report, check, check_with, find, find_with};
pub use coverage::{Coverage, Covering};
pub use disk::Disk;
pub use program::{Node, Program, Turn, turn};
pub use task::Task;

use crate::fabric::Fabric;
use crate::fabric::config::{Clock, Config};
use crate::fabric::host::Host;
use crate::fabric::log::Log;
use crate::fabric::rng::Rng;
use crate::fabric::rules::{Guard, Rule};
use crate::index::HostNo;
use chaos::Planned;
use coverage::Covered;
use program::Skew;

/// The longest time from an arrival to the turn of the program that waits for it.
const REACTION: Duration = Duration::from_micros(20);

/// The time that a turn takes before the next one.
const TURN: Duration = Duration::from_micros(1);

/// The number of turns one after the other that may wait for a time that has passed.
const LATE: u32 = 100_000;

/// Starts the program of a host.
type Start = Box<dyn FnMut(&Node) -> Box<dyn Program>>;

/// Hosts with programs, in virtual time. [`check`] makes one for each seed.
///
/// When all programs wait, time goes on to the next thing that is due. A seed decides everything that is open: how long a
/// message or a reaction takes, what is lost, what a fault hits. The same seed gives the same world, byte by byte, if
/// the programs are deterministic too: no threads, no clock and randomness except those of [`Node`], no order of a hash map.
///
/// ```
/// use cmid_sim::proto::Time;
/// use cmid_sim::{Config, Node, Turn, World};
/// use std::time::Duration;
///
/// /// Waits for a second, and is done.
/// fn sleeper(node: &Node) -> impl FnMut(Time) -> Turn + use<> {
///     let end = node.now().after(Duration::from_secs(1));
///     move |now| if now < end { Turn::Wait(Some(end)) } else { Turn::Done }
/// }
///
/// let mut world = World::logged(&Config::default());
/// world.client("sleeper", sleeper);
/// world.run_for(Duration::from_millis(500));
/// world.crash("sleeper"); // its program is dropped
/// world.restart("sleeper"); // and begins anew
/// world.run(Duration::from_secs(2));
/// assert_eq!(world.now(), Time(1_500_000_000));
/// assert!(world.trace().contains("sleeper: crashes"));
/// ```
pub struct World {
    fabric: Fabric,
    seats: Vec<Seat>,
    /// When the next turn of each seat's program is due; `NEVER` if it waits without a limit, and without a program.
    turns: Vec<Time>,
    addrs: Rc<RefCell<BTreeMap<String, IpAddr>>>,
    /// What happens at a time, by time and number.
    agenda: BTreeMap<(Time, u64), Act>,
    last_act: u64,
    plan: Vec<Planned>,
    /// The faults of the plan that are left out, while a failure is shrunk.
    left_out: Vec<usize>,
    planner: Rng,
    rng: Rng,
    covered: Covered,
}

/// A host with its program.
struct Seat {
    name: String,
    node: Node,
    start: Start,
    /// `None` while it does not run.
    program: Option<Box<dyn Program>>,
    /// Whether the world waits for its end.
    is_client: bool,
    is_done: bool,
    paused_until: Time,
    /// The number of its last turns of which each waits for a time that has passed.
    late: u32,
}

/// What happens at a time of the agenda.
#[derive(Debug)]
enum Act {
    Start(usize),
    Begin(usize),
    End(usize),
}

impl World {
    /// Creates a world without hosts, for a test that needs no [`check`]. Its time is virtual whatever the configuration
    /// says.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        World::with(config, &[], false)
    }

    /// As [`World::new`], with a log of what happens, for [`World::trace`] and [`World::chart`].
    #[must_use]
    pub fn logged(config: &Config) -> Self {
        World::with(config, &[], true)
    }

    fn with(config: &Config, left_out: &[usize], with_log: bool) -> Self {
        let seed = config.seed;
        let fabric = Fabric::new(Config { clock: Clock::Virtual, ..config.clone() });
        if with_log {
            fabric.with(|world| world.log = Some(Log::default()));
        }
        World {
            fabric,
            seats: Vec::new(),
            turns: Vec::new(),
            addrs: Rc::default(),
            agenda: BTreeMap::new(),
            last_act: 0,
            plan: Vec::new(),
            left_out: left_out.to_vec(),
            // Each has numbers of its own, so that a fault less changes no other one.
            planner: Rng::new(seed ^ 0x0bad_5eed_0bad_5eed),
            rng: Rng::new(seed.rotate_left(32)),
            covered: Covered::default(),
        }
    }

    /// Adds a host with a program that serves others: the world does not wait for its end. `start` is called when the world
    /// begins to run, and at each restart. Addresses are 10.0.0.1, 10.0.0.2 and so on.
    ///
    /// # Panics
    /// If there is a host with this name, or with more than 60,000 hosts.
    pub fn host<P: Program + 'static>(&mut self, name: &str, start: impl FnMut(&Node) -> P + 'static) -> Host {
        self.add(name, false, start)
    }

    /// Adds a host with a program that the world waits for: [`World::run`] ends when all of them are done.
    ///
    /// # Panics
    /// As [`World::host`].
    pub fn client<P: Program + 'static>(&mut self, name: &str, start: impl FnMut(&Node) -> P + 'static) -> Host {
        self.add(name, true, start)
    }

    fn add<P: Program + 'static>(
        &mut self,
        name: &str,
        is_client: bool,
        mut start: impl FnMut(&Node) -> P + 'static,
    ) -> Host {
        let number = u16::try_from(self.seats.len() + 1).unwrap_or(u16::MAX);
        assert!(number <= 60_000, "too many hosts");
        let [high, low] = ((number - 1) / 250 * 256 + (number - 1) % 250 + 1).to_be_bytes();
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, high, low));
        assert!(self.addrs.borrow_mut().insert(name.to_owned(), ip).is_none(), "two hosts with the name {name}");
        let host = self.fabric.host(&[ip]);
        let skew = Rc::new(Cell::new(Skew::default()));
        let disk = Disk::new(&self.fabric, &skew);
        let (addrs, covered) = (Rc::clone(&self.addrs), Arc::clone(&self.covered));
        let node = Node { host: host.clone(), disk, addrs, skew, alarm: Rc::default(), covered, ip };
        self.seats.push(Seat {
            name: name.to_owned(),
            node,
            start: Box::new(move |node| Box::new(start(node))),
            program: None,
            is_client,
            is_done: false,
            paused_until: Time::ZERO,
            late: 0,
        });
        self.turns.push(Time::NEVER);
        let seat = self.seats.len() - 1;
        self.act_at(self.now(), Act::Start(seat));
        host
    }

    /// Returns the time of the world.
    #[must_use]
    pub fn now(&self) -> Time {
        self.fabric.now()
    }

    /// Returns the fabric, for its counters.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Adds a rule for messages or data, which lives as long as its guard: see [`Rule`].
    pub fn rule(&self, rule: Rule) -> Guard {
        self.fabric.rule(rule)
    }

    /// Separates two groups of hosts until the guard is dropped. An empty group is all hosts.
    ///
    /// # Panics
    /// If there is no host with one of the names.
    pub fn partition(&self, some: &[&str], others: &[&str]) -> Guard {
        let rule = some.iter().fold(Rule::cut(), |rule, name| rule.from(self.at(name).node.host()));
        self.rule(others.iter().fold(rule, |rule, name| rule.to(self.at(name).node.host())))
    }

    /// Returns a number below `bound`, from the seed; 0 if `bound` is 0.
    pub fn random(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// Runs until all clients are done.
    ///
    /// # Panics
    /// If they are not done within `limit`; the text says which.
    #[track_caller]
    pub fn run(&mut self, limit: Duration) {
        let waits = |seat: &&Seat| seat.is_client && !seat.is_done;
        if !self.advance(limit, false, |world| !world.seats.iter().any(|seat| waits(&seat))) {
            let waiting: Vec<&str> = self.seats.iter().filter(waits).map(|seat| &*seat.name).collect();
            panic!("not done within {limit:?}: {}", waiting.join(", "));
        }
    }

    /// Returns what has happened so far, one line each: messages, calls, events, completions with an error, faults. Nothing
    /// without a log ([`World::logged`]). Keys are those of a device; lines of a program's second device say `device 2`.
    ///
    /// `a -> b: send, 8 bytes (QP 17, request 5)` is a message that arrives at `b`, with the sender's QP and `wr_id`; one with
    /// `a -x b` is lost, and so is one with `a -x`, because no device has its address.
    #[must_use]
    pub fn trace(&self) -> String {
        let name =
            |host: HostNo| self.seats.get(host.0).map_or_else(|| format!("host {}", host.0), |it| it.name.clone());
        self.fabric.with(|world| world.log.as_ref().map_or_else(String::new, |log| log.lines(name)))
    }

    /// Returns the same as a sequence chart of all hosts, in SVG: a `g` for each row, the latest 2,000 of them. Without a
    /// log it has no rows.
    #[must_use]
    pub fn chart(&self) -> String {
        let names: Vec<String> = self.seats.iter().map(|seat| seat.name.clone()).collect();
        self.fabric.with(|world| chart::draw(world.log.as_ref().unwrap_or(&Log::default()), &names))
    }

    /// Returns what the drives that are observed ([`Node::coverage`]) and the rules have met so far.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let mut coverage = coverage::lock(&self.covered).clone();
        self.fabric.with(|world| coverage.add_rules(world.rules.met()));
        coverage
    }

    /// Runs for this time.
    pub fn run_for(&mut self, span: Duration) {
        self.advance(span, false, |_| false);
    }

    /// Runs until something holds.
    ///
    /// # Panics
    /// If it does not hold within `limit`; the text has `what`.
    #[track_caller]
    pub fn run_until(&mut self, what: &str, limit: Duration, holds: impl FnMut(&World) -> bool) {
        assert!(self.advance(limit, true, holds), "not within {limit:?}: {what}");
    }

    /// Runs until something holds, or the time has passed. Returns whether it holds. It is asked after all turns of a time;
    /// with `each` after each time at which something happens in the fabric, too.
    fn advance(&mut self, span: Duration, each: bool, mut holds: impl FnMut(&World) -> bool) -> bool {
        let mut now = self.now();
        let end = now.after(span);
        self.go_on(now, each);
        while !holds(self) {
            now = self.go_on(end, each);
            if !self.act(now) && now >= end {
                return holds(self);
            }
            if each {
                self.go_on(now, each);
            }
        }
        self.go_on(now, each);
        true
    }

    /// Lets the fabric go on to the next turn or entry of the agenda, at most to `end`, with `each` only to the next time at
    /// which something happens. Plans a turn for each program to which something arrives. Returns the time.
    fn go_on(&mut self, end: Time, each: bool) -> Time {
        let World { fabric, seats, turns, agenda, rng, .. } = self;
        let stop = agenda.first_key_value().map_or(end, |(&(at, _), _)| at.min(end));
        fabric.with(|world| {
            let (mut now, mut is_over) = (world.now, false);
            loop {
                if world.timers.next_due().is_some_and(|due| due <= now) {
                    world.advance_to(now);
                }
                world.take_news(|host| {
                    // Other hosts of the fabric have no program.
                    let at = seats.partition_point(|seat| seat.node.host.no < host);
                    let Some((seat, turn)) = seats.get(at).zip(turns.get_mut(at)) else { return };
                    if seat.node.host.no == host && seat.program.is_some() {
                        let heard = now.after(Duration::from_nanos(rng.below(REACTION.as_nanos() as u64)));
                        *turn = heard.max(seat.paused_until).min(*turn);
                    }
                });
                let next = turns.iter().copied().fold(stop, Time::min);
                match world.timers.next_due().filter(|&due| due <= next && !is_over) {
                    Some(due) => (now, is_over) = (due, each),
                    None => {
                        // Nothing of the fabric is due until then.
                        world.now = if is_over { now } else { now.max(next) };
                        return world.now;
                    }
                }
            }
        })
    }

    /// Does what is due on the agenda, then all turns that are due. Returns whether there were any.
    fn act(&mut self, now: Time) -> bool {
        let mut has_acted = false;
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            has_acted = true;
            match entry.remove() {
                Act::Start(seat) => self.start(seat),
                Act::Begin(fault) => self.begin(fault),
                Act::End(fault) => self.end(fault),
            }
        }
        for at in 0..self.turns.len() {
            if self.turns.get(at).is_some_and(|&turn| turn <= now && turn < Time::NEVER) {
                has_acted = true;
                let next = self.take_turn(at, now);
                self.turn_at(at, next);
            }
        }
        has_acted
    }

    /// Gives a program its turn. Returns when the next one is due.
    fn take_turn(&mut self, at: usize, now: Time) -> Time {
        let Some(seat) = self.seats.get_mut(at) else { return Time::NEVER };
        let Some(program) = &mut seat.program else { return Time::NEVER };
        if now < seat.paused_until {
            return seat.paused_until;
        }
        let skew = seat.node.skew.get();
        let mut late = 0;
        let next = match program.turn(skew.local(now)) {
            Turn::Again => now.after(TURN),
            Turn::Wait(None) => Time::NEVER,
            Turn::Wait(Some(due)) => {
                let due = skew.world(due);
                late = if due <= now { seat.late + 1 } else { 0 };
                assert!(late < LATE, "{}: {LATE} turns, each waits for a time that has passed", seat.name);
                // At the same time again would be forever.
                due.max(now.after(TURN))
            }
            Turn::Done => {
                seat.program = None;
                seat.is_done = true;
                seat.node.note("is done");
                Time::NEVER
            }
        };
        seat.late = late;
        next
    }

    /// Plans the next turn of a program, in place of what is planned.
    fn turn_at(&mut self, at: usize, due: Time) {
        if let Some(turn) = self.turns.get_mut(at) {
            *turn = due;
        }
    }

    fn act_at(&mut self, at: Time, act: Act) {
        self.last_act += 1;
        self.agenda.insert((at, self.last_act), act);
    }

    fn at(&self, name: &str) -> &Seat {
        &self.seats[self.number(name)]
    }

    fn number(&self, name: &str) -> usize {
        match self.seats.iter().position(|seat| seat.name == name) {
            Some(number) => number,
            None => panic!("the world has no host {name}"),
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).field("hosts", &self.addrs.borrow()).finish_non_exhaustive()
    }
}
