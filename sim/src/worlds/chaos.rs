//! A plan of faults, drawn from the seed before the world runs.

use std::fmt;
use std::time::Duration;

use cmid_proto::{Errno, Time};

use crate::data::fault::Resource;
use crate::fabric::latency::Latency;
use crate::fabric::rng::Rng;
use crate::fabric::rules::{Guard, Rule};
use crate::worlds::{Act, World, coverage};

/// A kind of fault. [`World::chaos`] draws where it happens, when, and for how long from the seed; [`World::fault`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A program ends as by SIGKILL, and starts again.
    Crash,
    /// A host loses its power, and starts again with what its disk has kept.
    PowerLoss,
    /// A program does not run for a time.
    Pause,
    /// A host is separated from all others.
    LinkDown,
    /// A host's link comes and goes.
    Flap,
    /// Two hosts are separated.
    Partition,
    /// Between two hosts each message of the connection manager, datagram or packet is lost with a probability.
    Loss,
    /// Between two hosts messages take up to 20 ms longer.
    Delay,
    /// Between two hosts messages of the connection manager and datagrams arrive twice.
    Duplicates,
    /// The RDMA device of a host is removed, and one is added.
    DeviceRemoval,
    /// The next creation of one kind of [`Resource`] on a host fails with `ENOMEM`.
    OutOfMemory,
    /// One of the next 16 calls of a device on a host fails ([`Host::fail_call`](crate::Host::fail_call)).
    FailedCall,
    /// The link address of a host changes.
    LinkAddrChange,
    /// The bond of a host's network interfaces fails over.
    FailOver,
    /// The clock of a host jumps ahead by up to a second, and is then up to 200 ppm off.
    ClockJump,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 15] = [
        Fault::Crash,
        Fault::PowerLoss,
        Fault::Pause,
        Fault::LinkDown,
        Fault::Flap,
        Fault::Partition,
        Fault::Loss,
        Fault::Delay,
        Fault::Duplicates,
        Fault::DeviceRemoval,
        Fault::OutOfMemory,
        Fault::FailedCall,
        Fault::LinkAddrChange,
        Fault::FailOver,
        Fault::ClockJump,
    ];
}

/// `power loss of b, at 0.120000000 s for 35ms`.
impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at {} for {:?}", self.what(), self.begin, self.end.since(self.begin))
    }
}

/// A fault of the plan.
#[derive(Debug)]
pub(super) struct Planned {
    fault: Fault,
    begin: Time,
    end: Time,
    at: usize,
    /// Another host.
    other: usize,
    /// A number for what else is drawn.
    number: u64,
    names: [String; 2],
    guard: Option<Guard>,
}

impl Planned {
    /// `power loss of b`.
    fn what(&self) -> String {
        let [at, other] = &self.names;
        match self.fault {
            Fault::Crash => format!("crash of {at}"),
            Fault::PowerLoss => format!("power loss of {at}"),
            Fault::Pause => format!("pause of {at}"),
            Fault::LinkDown => format!("link down of {at}"),
            Fault::Flap => format!("flapping link of {at}"),
            Fault::Partition => format!("partition of {at} and {other}"),
            Fault::Loss => format!("loss of {} % between {at} and {other}", self.loss_percent()),
            Fault::Delay => format!("delay between {at} and {other}"),
            Fault::Duplicates => format!("duplicates between {at} and {other}"),
            Fault::DeviceRemoval => format!("device removal of {at}"),
            Fault::OutOfMemory => format!("no memory for the next {:?} on {at}", self.resource()),
            Fault::FailedCall => format!("failing call on {at} after {} others: {}", self.number % 16, self.errno()),
            Fault::LinkAddrChange => format!("changed link address of {at}"),
            Fault::FailOver => format!("failover of the bond of {at}"),
            Fault::ClockJump => format!("clock jump of {at}"),
        }
    }

    fn resource(&self) -> Resource {
        Resource::ALL[(self.number % Resource::ALL.len() as u64) as usize]
    }

    fn errno(&self) -> Errno {
        [Errno::ENOMEM, Errno::EINVAL, Errno::EIO, Errno::ENODEV][(self.number >> 4) as usize % 4]
    }

    fn loss_percent(&self) -> u64 {
        5 + self.number % 91
    }
}

impl World {
    /// Plans this number of faults of these kinds, to begin and end within `span` from now on; a fault that is one moment
    /// has no end. The hosts are those added so far. A failure is shrunk to the faults that it needs.
    /// Faults meet something only if programs still run, and wait where they are to hit: [`Coverage::faults`](crate::Coverage::faults).
    pub fn chaos(&mut self, faults: usize, span: Duration, kinds: &[Fault]) {
        let hosts = self.seats.len() as u64;
        for _ in 0..faults {
            let rng = &mut self.planner;
            let Some(&fault) = kinds.get(rng.below(kinds.len() as u64) as usize) else { return };
            let at = rng.below(hosts);
            let other = (at + 1 + rng.below(hosts.saturating_sub(1))) % hosts.max(1);
            let (begin, end) = draw_times(rng, self.fabric.now(), span);
            let number = rng.next();
            let [at, other] = [at, other].map(|host| host as usize);
            self.plan(fault, [at, other], [begin, end], number);
        }
    }

    /// Plans one fault at a host, from `begin` on for `span`; a fault that is one moment has no end. `other` is the second
    /// host of a fault between two, and does not count for the others.
    ///
    /// # Panics
    /// If there is no host with one of the names.
    pub fn fault(&mut self, fault: Fault, at: &str, other: &str, begin: Time, span: Duration) {
        let hosts = [at, other].map(|name| self.number(name));
        let number = self.planner.next();
        self.plan(fault, hosts, [begin, begin.after(span)], number);
    }

    fn plan(&mut self, fault: Fault, [at, other]: [usize; 2], [begin, end]: [Time; 2], number: u64) {
        let name = |host: usize| self.seats.get(host).map_or_else(String::new, |seat| seat.name.clone());
        let names = [name(at), name(other)];
        let no = self.plan.len();
        self.plan.push(Planned { fault, begin, end, at, other, number, names, guard: None });
        if !self.left_out.contains(&no) {
            self.act_at(begin, Act::Begin(no));
            self.act_at(end, Act::End(no));
        }
    }

    /// The faults of the plan that are not left out.
    pub(super) fn planned(&self) -> impl Iterator<Item = (usize, &Planned)> {
        self.plan.iter().enumerate().filter(|(no, _)| !self.left_out.contains(no))
    }

    pub(super) fn begin(&mut self, no: usize) {
        let Some(planned) = self.plan.get(no) else { return };
        let (resource, errno, loss) = (planned.resource(), planned.errno(), planned.loss_percent() as f64 / 100.0);
        let (fault, end, at, number) = (planned.fault, planned.end, planned.at, planned.number);
        let text = planned.to_string();
        let Some(other) = self.seats.get(planned.other).map(|seat| seat.node.host().clone()) else { return };
        let Some(seat) = self.seats.get_mut(at) else { return };
        seat.node.note(&format!("fault: {text}"));
        coverage::lock(&self.covered).faults += 1;
        let (host, mut rule) = (seat.node.host(), None);
        let short = |shift: u32| Duration::from_millis(1 + (number >> shift) % 50);
        let late = Latency::Tail(Duration::ZERO, Duration::from_millis(20));
        match fault {
            Fault::Crash => seat.crash(),
            Fault::PowerLoss => seat.lose_power(),
            Fault::Pause => seat.pause(end),
            Fault::LinkDown => rule = Some(Rule::cut().from(host)),
            Fault::Flap => rule = Some(Rule::flap(short(0), short(16)).from(host)),
            Fault::Partition => rule = Some(Rule::cut().between(host, &other)),
            Fault::Loss => rule = Some(Rule::drop().between(host, &other).with_chance(loss)),
            Fault::Delay => rule = Some(Rule::delay(late).between(host, &other)),
            Fault::Duplicates => rule = Some(Rule::duplicate().between(host, &other).with_chance(0.5)),
            Fault::DeviceRemoval => host.remove_device(),
            Fault::OutOfMemory => host.fail_next_creation(resource, Errno::ENOMEM),
            Fault::FailedCall => host.fail_call((number % 16) as u32, errno),
            Fault::LinkAddrChange => host.change_link_addr(),
            Fault::FailOver => host.fail_over(),
            Fault::ClockJump => {
                let mut skew = seat.node.skew.get();
                skew.ahead += number % 1_000_000_000;
                skew.drift_ppm = (number >> 40) as i32 % 401 - 200;
                seat.node.skew.set(skew);
            }
        }
        let guard = rule.map(|rule| self.rule(rule));
        if let Some(planned) = self.plan.get_mut(no) {
            planned.guard = guard;
        }
    }

    pub(super) fn end(&mut self, no: usize) {
        let Some(planned) = self.plan.get_mut(no) else { return };
        let (fault, at, guard) = (planned.fault, planned.at, planned.guard.take());
        let Some(seat) = self.seats.get(at) else { return };
        if let Some(_ended) = guard {
            seat.node.note(&format!("over: {}", planned.what()));
        }
        if fault == Fault::DeviceRemoval {
            seat.node.note("has a device again");
            seat.node.host().add_device();
        } else if matches!(fault, Fault::Crash | Fault::PowerLoss) {
            self.start(at);
        }
    }
}

/// Draws when a fault begins and ends. Half of them are short.
fn draw_times(rng: &mut Rng, now: Time, span: Duration) -> (Time, Time) {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let begin = rng.below(nanos);
    let most = if rng.below(2) == 0 { (nanos - begin).min(50_000_000) } else { nanos - begin };
    let end = begin.saturating_add(rng.below(most).max(1_000_000)).min(nanos.max(begin));
    (Time(now.0.saturating_add(begin)), Time(now.0.saturating_add(end)))
}
