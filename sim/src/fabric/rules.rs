//! Rules for what travels between hosts: loss, delay, duplicates, partitions. Each one lives as long as its guard.

use std::collections::BTreeMap;
use std::time::Duration;

use cmid_proto::Time;
use smallvec::SmallVec;

use crate::fabric::Fabric;
use crate::fabric::host::Host;
use crate::fabric::latency::Latency;
use crate::fabric::rng::Rng;
use crate::fabric::table::Table;
use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::due::Due;
use crate::kernel::wire::Body;

/// What travels from one host to another: a kind of message of the connection manager, or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A connection request.
    Req,
    /// Asks for more time to answer a request.
    Mra,
    /// Accepts a request.
    Rep,
    /// Confirms a REP.
    Rtu,
    /// Refuses a request.
    Rej,
    /// Asks for the end of a connection.
    Dreq,
    /// Confirms the end.
    Drep,
    /// Asks for the QP of a datagram service.
    SidrReq,
    /// Answers a SIDR REQ.
    SidrRep,
    /// A packet of a connected QP: a send, write, read or atomic operation. The transport repeats a lost one and those after
    /// it, after the QP's ACK timeout and at most `retry_count` times. Packets keep their order, and their answers arrive.
    Packet,
    /// A datagram.
    Datagram,
}

impl Kind {
    pub(crate) const fn of(body: &Body) -> Kind {
        match body {
            Body::Req(_) => Kind::Req,
            Body::Mra => Kind::Mra,
            Body::Rep(_) => Kind::Rep,
            Body::Rtu => Kind::Rtu,
            Body::Rej { .. } => Kind::Rej,
            Body::Dreq { .. } => Kind::Dreq,
            Body::Drep => Kind::Drep,
            Body::SidrReq(_) => Kind::SidrReq,
            Body::SidrRep { .. } => Kind::SidrRep,
        }
    }
}

/// What a rule does, for [`Coverage::rules`](crate::Coverage::rules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleKind {
    /// [`Rule::drop`], and [`Config::loss`](crate::Config::loss).
    Drop,
    /// [`Rule::delay`].
    Delay,
    /// [`Rule::duplicate`].
    Duplicate,
    /// [`Rule::cut`].
    Cut,
    /// [`Rule::flap`].
    Flap,
    /// [`Rule::bandwidth`].
    Bandwidth,
}

impl RuleKind {
    /// All of them.
    pub const ALL: [RuleKind; 6] =
        [RuleKind::Drop, RuleKind::Delay, RuleKind::Duplicate, RuleKind::Cut, RuleKind::Flap, RuleKind::Bandwidth];
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Drop,
    Delay(Latency),
    Duplicate,
    /// No way between the hosts, in both directions. With two times the way comes and goes: so long it is there, so long
    /// it is cut.
    Cut(Option<(Duration, Duration)>),
    /// In bytes a second, not 0.
    Bandwidth(u64),
}

impl Effect {
    const fn kind(self) -> RuleKind {
        match self {
            Effect::Drop => RuleKind::Drop,
            Effect::Delay(_) => RuleKind::Delay,
            Effect::Duplicate => RuleKind::Duplicate,
            Effect::Cut(None) => RuleKind::Cut,
            Effect::Cut(Some(_)) => RuleKind::Flap,
            Effect::Bandwidth(_) => RuleKind::Bandwidth,
        }
    }
}

/// What happens to some of what travels between hosts, for [`Fabric::rule`]. Without a restriction it is everything.
///
/// Rules do not concern the messages of iWARP connections, which TCP carries; [`Rule::cut`] does.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    effect: Effect,
    /// Empty for all.
    kinds: Vec<Kind>,
    from: Vec<HostNo>,
    to: Vec<HostNo>,
    either_way: bool,
    chance: Option<f64>,
    nth: Option<u64>,
}

impl Rule {
    const fn new(effect: Effect) -> Self {
        Rule { effect, kinds: Vec::new(), from: Vec::new(), to: Vec::new(), either_way: false, chance: None, nth: None }
    }

    /// It is lost.
    #[must_use]
    pub const fn drop() -> Self {
        Rule::new(Effect::Drop)
    }

    /// It takes longer, by a time of this distribution. Messages of the connection manager and datagrams overtake each
    /// other then; data of a connection keeps its order.
    #[must_use]
    pub const fn delay(by: Latency) -> Self {
        Rule::new(Effect::Delay(by))
    }

    /// It arrives twice; of messages of the connection manager and datagrams. A connected QP drops duplicates unseen.
    #[must_use]
    pub const fn duplicate() -> Self {
        Rule::new(Effect::Duplicate)
    }

    /// A partition: nothing passes between the hosts of [`from`](Rule::from) and of [`to`](Rule::to), in either direction.
    /// Kind, chance and number do not count. When the rule ends, connected QPs repeat what they have not given up.
    #[must_use]
    pub fn cut() -> Self {
        Rule { either_way: true, ..Rule::new(Effect::Cut(None)) }
    }

    /// A link that flaps: as [`Rule::cut`], but the way is there for the first time, then cut for the second, and so on.
    /// Neither time is less than a microsecond. While the rule lives there is always a next event ([`Fabric::next_due`]).
    #[must_use]
    pub fn flap(up: Duration, down: Duration) -> Self {
        let least = Duration::from_micros(1);
        Rule { either_way: true, ..Rule::new(Effect::Cut(Some((up.max(least), down.max(least))))) }
    }

    /// A link of so many bytes a second, at least one, that all share which the rule selects, one after the other: what is sent
    /// arrives when the last byte of it has left, and the latency has passed. Packets and datagrams have their payload, reads
    /// that of their answer, messages of the connection manager 256 bytes. Kind, chance and number do not count. With
    /// [`between`](Rule::between) both directions share it, answers without bytes too; a link that is full duplex has two
    /// rules.
    #[must_use]
    pub fn bandwidth(bytes_per_second: u64) -> Self {
        Rule::new(Effect::Bandwidth(bytes_per_second.max(1)))
    }

    /// Only these kinds.
    #[must_use]
    pub fn of(mut self, kinds: &[Kind]) -> Self {
        self.kinds.extend(kinds);
        self
    }

    /// Only from this host, or from one of several.
    #[must_use]
    pub fn from(mut self, host: &Host) -> Self {
        self.from.push(host.no);
        self
    }

    /// Only to this host, or to one of several. A datagram to a group counts when it arrives at each receiver.
    #[must_use]
    pub fn to(mut self, host: &Host) -> Self {
        self.to.push(host.no);
        self
    }

    /// Only between two hosts, in both directions.
    #[must_use]
    pub fn between(self, a: &Host, b: &Host) -> Self {
        Rule { either_way: true, ..self.from(a).to(b) }
    }

    /// Only with this probability, 0 to 1.
    #[must_use]
    pub fn with_chance(mut self, chance: f64) -> Self {
        self.chance = Some(chance);
        self
    }

    /// Only the n-th that matches otherwise, from 1 on.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    fn concerns(&self, from: HostNo, to: Option<HostNo>) -> bool {
        let is = |list: &[HostNo], host: Option<HostNo>| list.is_empty() || host.is_some_and(|it| list.contains(&it));
        let way = |from, to| is(&self.from, from) && is(&self.to, to);
        way(Some(from), to) || self.either_way && way(to, Some(from))
    }
}

/// How often rules had their effect, on what: `None` for a look-up of an address, and a connection of iWARP.
pub(crate) type Met = BTreeMap<(RuleKind, Option<Kind>), u64>;

/// The rules of a fabric.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    active: Vec<Active>,
    /// How often rules have had their effect, those that have ended too.
    met: Table<(RuleKind, Option<Kind>), u64>,
    last: u64,
}

#[derive(Debug)]
struct Active {
    no: u64,
    rule: Rule,
    begun: Time,
    /// How often it has matched, and how often it has had its effect.
    met: u64,
    done: u64,
    /// When a link of a bandwidth has sent all that waits for it.
    busy_until: Time,
}

/// The number of the rule of [`Config::loss`](crate::Config::loss).
const LOSS: u64 = 0;

impl Active {
    /// Whether it cuts the way between two hosts now.
    fn cuts(&self, from: HostNo, to: HostNo, now: Time) -> bool {
        let Effect::Cut(flaps) = self.rule.effect else { return false };
        let is_down = |(up, down): (Duration, Duration)| {
            now.since(self.begun).as_nanos() % (up.as_nanos() + down.as_nanos()) >= up.as_nanos()
        };
        flaps.is_none_or(is_down) && self.rule.concerns(from, Some(to))
    }
}

impl Rules {
    pub(crate) fn met(&self) -> Met {
        let all = self.met.keys_of(|_, _| true).into_iter();
        all.map(|met| (met, self.met.get(&met).copied().unwrap_or_default())).collect()
    }

    fn add(&mut self, no: u64, rule: Rule, begun: Time) {
        self.active.push(Active { no, rule, begun, met: 0, done: 0, busy_until: begun });
    }

    /// Sets the rule of [`Config::loss`](crate::Config::loss).
    pub(crate) fn set_loss(&mut self, loss: f64) {
        self.active.retain(|it| it.no != LOSS);
        if loss > 0.0 {
            use Kind::{Datagram, Drep, Dreq, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
            let kinds = [Req, Mra, Rep, Rtu, Rej, Dreq, Drep, SidrReq, SidrRep, Datagram];
            self.add(LOSS, Rule::drop().of(&kinds).with_chance(loss), Time::ZERO);
        }
    }

    /// The effects of the rules that select what travels from one host to another.
    fn effects(
        &mut self,
        which: impl Fn(Effect) -> bool,
        kind: Kind,
        from: HostNo,
        to: Option<HostNo>,
        rng: &mut Rng,
    ) -> SmallVec<[Effect; 2]> {
        let mut effects = SmallVec::new();
        for Active { rule, met, done, .. } in &mut self.active {
            let selects = which(rule.effect) && (rule.kinds.is_empty() || rule.kinds.contains(&kind));
            if !selects || !rule.concerns(from, to) {
                continue;
            }
            *met += 1;
            if rule.nth.is_none_or(|nth| nth == *met) && rule.chance.is_none_or(|chance| rng.chance(chance)) {
                *done += 1;
                *self.met.or_default((rule.effect.kind(), Some(kind))) += 1;
                effects.push(rule.effect);
            }
        }
        effects
    }

    /// Whether a rule cuts the way of something between two hosts. Counts it.
    fn is_cut(&mut self, kind: Option<Kind>, from: HostNo, to: HostNo, now: Time) -> bool {
        let mut is_cut = false;
        for active in self.active.iter_mut().filter(|active| active.cuts(from, to, now)) {
            active.done += 1;
            *self.met.or_default((active.rule.effect.kind(), kind)) += 1;
            is_cut = true;
        }
        is_cut
    }

    /// Sends so many bytes over the links on their way. Returns when the last one has left.
    fn leave(&mut self, kind: Kind, from: HostNo, to: Option<HostNo>, bytes: usize, now: Time) -> Time {
        let mut left = now;
        for Active { rule, done, busy_until, .. } in &mut self.active {
            let Effect::Bandwidth(rate) = rule.effect else { continue };
            if rule.concerns(from, to) {
                let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate);
                left = left.max(*busy_until).after(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
                (*busy_until, *done) = (left, *done + 1);
                *self.met.or_default((rule.effect.kind(), Some(kind))) += 1;
            }
        }
        left
    }
}

impl World {
    /// Whether something passes from one host to another: both links are up, and no rule cuts the way. It has no kind if it is
    /// the look-up of an address or a connection of iWARP.
    pub(crate) fn passes(&mut self, kind: Option<Kind>, from: HostNo, to: HostNo) -> bool {
        self.are_up(from, to) && !self.rules.is_cut(kind, from, to, self.now)
    }

    /// Whether a packet would pass now.
    pub(crate) fn is_open(&self, from: HostNo, to: HostNo) -> bool {
        self.are_up(from, to) && !self.rules.active.iter().any(|active| active.cuts(from, to, self.now))
    }

    fn are_up(&self, one: HostNo, other: HostNo) -> bool {
        [one, other].iter().all(|host| self.hosts.get(host.0).is_some_and(|host| host.link_up))
    }

    /// Decides whether the next one of this kind is lost. `to` is looked up only if there are rules.
    pub(crate) fn is_lost(&mut self, kind: Kind, from: HostNo, to: impl FnOnce(&World) -> Option<HostNo>) -> bool {
        if self.rules.active.is_empty() {
            return false;
        }
        let to = to(self);
        !self.rules.effects(|it| it == Effect::Drop, kind, from, to, &mut self.rng).is_empty()
    }

    /// Returns when an answer with so many bytes arrives, which no rule loses or delays.
    pub(crate) fn answer_arrival(&mut self, from: HostNo, to: HostNo, bytes: usize) -> Time {
        self.rules.leave(Kind::Packet, from, Some(to), bytes, self.now).after(self.config.latency)
    }

    /// Returns when each copy of the next one of this kind arrives, which has so many bytes.
    pub(crate) fn arrivals(
        &mut self,
        kind: Kind,
        bytes: usize,
        from: HostNo,
        to: impl FnOnce(&World) -> Option<HostNo>,
    ) -> (Time, Option<Time>) {
        let latency = self.config.latency;
        if self.rules.active.is_empty() {
            return (self.now.after(latency), None);
        }
        let to = to(self);
        let usual = self.rules.leave(kind, from, to, bytes, self.now).after(latency);
        let of = |it| matches!(it, Effect::Delay(_) | Effect::Duplicate);
        let (mut due, mut copies) = (usual, false);
        for effect in self.rules.effects(of, kind, from, to, &mut self.rng) {
            match effect {
                Effect::Delay(by) => due = due.after(by.draw(&mut self.rng)),
                Effect::Duplicate => copies = true,
                Effect::Drop | Effect::Cut(_) | Effect::Bandwidth(_) => {}
            }
        }
        // The copy comes later by up to the way of the first one.
        let later =
            copies.then(|| due.after(Duration::from_nanos(self.rng.below(due.since(self.now).as_nanos() as u64))));
        (due, later)
    }

    /// A rule of a link that flaps: connected QPs repeat their packets at the end of each cut.
    pub(crate) fn flap(&mut self, no: u64) {
        let Some(Active { rule, .. }) = self.rules.active.iter().find(|it| it.no == no) else { return };
        if let Effect::Cut(Some((up, down))) = rule.effect {
            self.timers.arm(self.now.after(up.saturating_add(down)), Due::Flap { rule: no });
            self.retry(None);
        }
    }
}

/// Ends a [`Rule`] when it is dropped.
#[derive(Debug)]
#[must_use = "the rule ends with its guard"]
pub struct Guard {
    fabric: Fabric,
    no: u64,
}

impl Guard {
    /// Returns how often the rule has lost, delayed, doubled, stopped or sent something: whether a test has met it at all.
    #[must_use]
    pub fn count(&self) -> u64 {
        let no = self.no;
        self.fabric.with(|world| world.rules.active.iter().find(|it| it.no == no).map_or(0, |it| it.done))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            let is_it = |active: &Active| active.no == self.no;
            let Some(at) = world.rules.active.iter().position(is_it) else { return };
            if let Effect::Cut(_) = world.rules.active.remove(at).rule.effect {
                world.retry(None);
            }
        });
    }
}

impl Fabric {
    /// Adds a rule, which lives as long as its guard. Several rules apply one after the other.
    pub fn rule(&self, rule: Rule) -> Guard {
        let no = self.with(|world| {
            world.rules.last += 1;
            let (no, now) = (world.rules.last, world.now);
            if let Effect::Cut(Some((up, down))) = rule.effect {
                world.timers.arm(now.after(up.saturating_add(down)), Due::Flap { rule: no });
            }
            world.rules.add(no, rule, now);
            no
        });
        Guard { fabric: self.clone(), no }
    }
}
