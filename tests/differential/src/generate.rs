//! Generates programs from seeds.
//!
//! The generator assumes that every call succeeds. It mostly continues with the next call of an id's normal life, and
//! sometimes with an arbitrary one. If an assumption is wrong, the program makes calls in a wrong order, which is
//! intended.

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use cmid_sim::Flavour;

use crate::address::{Endpoint, Ip, Numbers};
use crate::prediction::{Beliefs, Believed, Phase};
use crate::program::{Action, CHILDREN, ChannelNo, Level, Network, Offer, Opt, Program, SideName, Slot, Space, Step};
use crate::simulated::{Schedule, schedules, simulate};

/// The maximum number of groups of more than one step, each with one boundary. The number of schedules grows with it.
const RACES_MAX: usize = 2;

/// Numbers for runs that are not compared.
pub const NUMBERS: Numbers = Numbers { port: 20_000, qp_num: 0x40_0000, link: 2 };

/// Generates the program of a seed, for soft-RoCE.
#[must_use]
pub fn program(seed: u64) -> Program {
    program_on(Network::Roce, seed)
}

/// Generates the program of a seed, for this network.
#[must_use]
pub fn program_on(network: Network, seed: u64) -> Program {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let level = if rng.random_ratio(1, 2) { Level::Device } else { Level::Core };
    let mut maker = Maker { rng, level, network, steps: Vec::new(), beliefs: Beliefs::default(), races: 0, next_qp: 0 };
    maker.prologue();
    let length = maker.rng.random_range(20..70);
    let pauses = maker.rng.random_range(0..3);
    for at in 0..length {
        if pauses > 0 && at > 0 && at % (length / pauses + 1) == 0 {
            maker.pass_time();
        }
        maker.step();
    }
    if maker.rng.random_ratio(2, 3) {
        maker.pass_time();
    }
    tame(Program { seed, level, network, steps: maker.steps })
}

/// Whether no call in the program blocks in the kernel, under any schedule: a destroy for 70 seconds on InfiniBand
/// (semantics 3.3), the end of an attempt to connect for 10 seconds on iWARP (semantics 16.2).
#[must_use]
pub fn is_safe(program: &Program) -> bool {
    stalls(program) == 0
}

fn stalls(program: &Program) -> u64 {
    let run = |schedule: &Schedule| simulate(program, NUMBERS, Flavour::Linux6_12, schedule).stalls;
    schedules(program).iter().map(run).sum()
}

/// Removes the steps that make a call block: answers on InfiniBand, attempts to connect and their ends on iWARP.
fn tame(mut program: Program) -> Program {
    let mut left = stalls(&program);
    while left > 0 {
        let answers = |step: &Step| match program.network {
            Network::Roce => {
                matches!(step.action, Action::Accept { .. } | Action::Reject { .. } | Action::Establish { .. })
            }
            Network::Iwarp => matches!(
                step.action,
                Action::Connect { .. } | Action::Destroy { .. } | Action::Disconnect { .. } | Action::Teardown { .. }
            ),
        };
        let places: Vec<usize> = (0..program.steps.len()).filter(|&at| answers(&program.steps[at])).collect();
        let without = |at: usize| {
            let mut less = program.clone();
            let gone = less.steps.remove(at);
            if let Some(next) = less.steps.get_mut(at) {
                next.races &= gone.races;
            }
            (stalls(&less), less)
        };
        // Removes the answer that causes most of it. (If no single one does, removes the last one.)
        let better = places.iter().map(|&at| without(at)).min_by_key(|(stalls, _)| *stalls);
        let Some((stalls, less)) = better else { break };
        (left, program) = (stalls, less);
    }
    program
}

/// The next step.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Reads any channel: an id in synchronous mode gets its events without one.
    Read(Option<ChannelNo>),
    Call(Slot, Believed),
}

struct Maker {
    rng: ChaCha8Rng,
    level: Level,
    network: Network,
    steps: Vec<Step>,
    beliefs: Beliefs,
    races: usize,
    next_qp: u8,
}

impl Maker {
    /// Makes channels on both sides, ids, and mostly a listener.
    fn prologue(&mut self) {
        for side in [SideName::B, SideName::A] {
            for channel in 0..self.rng.random_range(1..=3) {
                let explicit_acks = self.rng.random_ratio(1, 3);
                self.put(side, Action::OpenChannel { channel, explicit_acks });
            }
        }
        for _ in 0..self.rng.random_range(1..=2) {
            let space = if self.rng.random_ratio(1, 4) { Space::Udp } else { Space::Tcp };
            self.create(SideName::B, space);
            if self.rng.random_ratio(9, 10) {
                let id = self.beliefs.side(SideName::B).last_made();
                let ip = match self.rng.random_range(0..40) {
                    0..7 => Ip::Any,
                    7..10 => Ip::OfB6,
                    10 => Ip::Any6,
                    11 => Ip::Link6,
                    _ => Ip::OfB,
                };
                let port = self.rng.random_range(1..=3);
                self.put(SideName::B, Action::Bind { id, at: Endpoint(ip, port) });
                self.listen(SideName::B, id);
            }
            for _ in 0..self.rng.random_range(1..=2) {
                let space = if self.rng.random_ratio(1, 12) { Space::Udp } else { space };
                self.create(SideName::A, space);
            }
        }
    }

    fn create(&mut self, side: SideName, space: Space) {
        let id = self.beliefs.side(side).next_own();
        if id + 1 >= CHILDREN {
            return;
        }
        let space = if self.network == Network::Iwarp { Space::Tcp } else { space };
        let synchronous = self.level == Level::Core && self.rng.random_ratio(1, 6);
        let channel = if synchronous { None } else { self.channel(side) };
        self.put(side, Action::Create { id, channel, space });
    }

    fn listen(&mut self, side: SideName, id: Slot) {
        let backlog = if self.rng.random_ratio(1, 6) { self.rng.random_range(-1..3) } else { 8 };
        self.put(side, Action::Listen { id, backlog });
    }

    fn channel(&mut self, side: SideName) -> Option<ChannelNo> {
        self.beliefs.side(side).channels.choose(&mut self.rng).copied()
    }

    fn put(&mut self, side: SideName, action: Action) {
        let follows = self.steps.last().is_some_and(|last| last.action.is_call() && last.side != side && !last.races);
        let races = action.is_call() && follows && self.races < RACES_MAX && self.rng.random_ratio(1, 4);
        self.races += usize::from(races);
        self.beliefs.assume(side, &action);
        self.steps.push(Step { side, action, races });
    }

    fn pass_time(&mut self) {
        self.put(SideName::A, Action::LetTimePass);
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..76 => self.sensible(),
            76..80 => {
                let side = self.side();
                self.read(side, None);
            }
            80..82 => {
                let side = self.side();
                let space = match self.rng.random_range(0..12) {
                    0..3 => Space::Udp,
                    3 => Space::Ipoib,
                    _ => Space::Tcp,
                };
                self.create(side, space);
            }
            82..90 => self.migrate(),
            _ => self.anything(),
        }
    }

    fn side(&mut self) -> SideName {
        if self.rng.random_ratio(1, 2) { SideName::A } else { SideName::B }
    }

    /// Reads this channel, or any.
    fn read(&mut self, side: SideName, channel: Option<ChannelNo>) {
        if self.level == Level::Core {
            self.put(side, Action::Turn);
        }
        let Some(channel) = channel.or_else(|| self.channel(side)) else { return };
        let most = if self.rng.random_ratio(1, 6) { Some(1) } else { None };
        self.put(side, Action::Read { channel, most });
        if self.level == Level::Core && self.rng.random_ratio(2, 3) {
            let most = self.rng.random_range(1..7);
            self.put(side, Action::Ack { most });
        }
    }

    fn migrate(&mut self) {
        let side = self.side();
        let Some((id, believed)) = self.any_id(side) else { return };
        // The kernel follows dangling pointers in a listener's requests (semantics 5.6 rule 6). The core never makes
        // this call.
        if self.level == Level::Device && believed.has_listened {
            return;
        }
        let to = if self.level == Level::Core && self.rng.random_ratio(1, 5) { None } else { self.channel(side) };
        if to.is_some() || self.level == Level::Core {
            self.put(side, Action::Migrate { id, to });
        }
    }

    fn any_id(&mut self, side: SideName) -> Option<(Slot, Believed)> {
        let ids: Vec<(Slot, Believed)> = self.beliefs.side(side).ids.iter().map(|(&id, &how)| (id, how)).collect();
        ids.choose(&mut self.rng).copied()
    }

    fn endpoint(&mut self) -> Endpoint {
        let port = self.rng.random_range(0..=4);
        let ip = match self.rng.random_range(0..80) {
            0..24 => Ip::OfB,
            24..42 => Ip::OfA,
            42..48 => Ip::Any,
            48..52 => Ip::Loopback,
            52..55 => Ip::NoRdma,
            55..58 => Ip::NoRoute,
            58..60 => Ip::Group(1),
            60..62 => Ip::Broadcast,
            62 => Ip::Everybody,
            63..65 => Ip::Silent,
            65..67 => Ip::OfA6,
            67..69 => Ip::OfB6,
            69 => Ip::Any6,
            70 => Ip::Loopback6,
            71..73 => Ip::Mapped,
            73..75 => Ip::Link6,
            75 => Ip::NoLink6,
            76 => Ip::NoRoute6,
            77..79 => Ip::Group6(4),
            _ => Ip::LinkGroup6(5),
        };
        Endpoint(ip, port)
    }

    fn offer(&mut self, limit: u8) -> Offer {
        self.next_qp = self.next_qp.wrapping_add(1).max(1);
        // Sometimes one that is in use.
        let qp = if self.rng.random_ratio(1, 15) { 1 } else { self.next_qp };
        // Sometimes more than the device supports.
        let depth = |rng: &mut ChaCha8Rng| {
            if rng.random_ratio(1, 40) { 129 } else { *[0, 1, 4, 7, 128, 255].choose(rng).unwrap_or(&1) }
        };
        let (serves, starts) = (depth(&mut self.rng), depth(&mut self.rng));
        // The device lowers 8 to 7; the core refuses it.
        let most = if self.level == Level::Core { 7 } else { 8 };
        let rnr = self.rng.random_range(0..=8).min(most);
        Offer { qp, serves, starts, rnr, data: self.data(limit) }
    }

    /// A length of private data, sometimes one byte too long.
    fn data(&mut self, limit: u8) -> u8 {
        match self.rng.random_range(0..30) {
            0 => limit + 1,
            1..4 => limit,
            4..7 => 0,
            _ => self.rng.random_range(1..32),
        }
    }

    /// The next call of some id's normal life, or a read of a pending event.
    fn sensible(&mut self) {
        let mut choices = Vec::new();
        for side in [SideName::A, SideName::B] {
            if let Some(channel) = self.beliefs.side(side).waiting() {
                choices.push((side, Next::Read(channel)));
            }
            choices.extend(self.beliefs.side(side).ids.iter().map(|(&id, &how)| (side, Next::Call(id, how))));
        }
        for _ in 0..8 {
            match choices.choose(&mut self.rng).copied() {
                Some((side, Next::Read(channel))) => return self.read(side, channel),
                Some((side, Next::Call(id, believed))) => {
                    if let Some(action) = self.next_of(side, id, believed) {
                        return self.put(side, action);
                    }
                }
                None => return,
            }
        }
    }

    fn next_of(&mut self, side: SideName, id: Slot, believed: Believed) -> Option<Action> {
        let udp = believed.space == Space::Udp;
        // On iWARP a connection needs a QP.
        let of_ten = if self.network == Network::Iwarp { 9 } else { 1 };
        let wants_qp = !believed.has_qp && self.rng.random_ratio(of_ten, 10);
        let core = self.level == Level::Core;
        let joined = (0..8).find(|&group| believed.joined[usize::from(group)]);
        Some(match believed.phase {
            Phase::Idle | Phase::Bound if self.rng.random_ratio(1, 12) => {
                let src = if self.rng.random_ratio(1, 3) { Some(self.endpoint()) } else { None };
                let dst = self.endpoint();
                let many = matches!(dst.0, Ip::Broadcast | Ip::Everybody | Ip::Group(_));
                // Addresses for which the loopback source makes a difference.
                let src = if many && self.rng.random_ratio(1, 3) { Some(Endpoint(Ip::Loopback, 0)) } else { src };
                Action::ResolveAddr { id, src, dst }
            }
            Phase::Idle | Phase::Bound => {
                let dst = self.beliefs.side(side.other()).listening(believed.space)?;
                let near = if dst.0.is_ipv6() { Ip::OfA6 } else { Ip::OfA };
                let src = if self.rng.random_ratio(1, 6) { Some(Endpoint(near, 0)) } else { None };
                Action::ResolveAddr { id, src, dst }
            }
            Phase::Resolved if joined.is_some() && self.rng.random_ratio(1, 3) => Action::Leave { id, group: joined? },
            Phase::Resolved if udp && self.rng.random_ratio(1, 4) => {
                let action =
                    Action::Join { id, group: self.rng.random_range(1..6), send_only: self.rng.random_ratio(1, 3) };
                return self.may(side, id, action).then_some(action);
            }
            Phase::Resolved | Phase::Routed | Phase::Requested if wants_qp && self.rng.random_ratio(1, 6) => {
                Action::AttachHugeQp { id }
            }
            Phase::Resolved | Phase::Routed | Phase::Requested if wants_qp => Action::AttachQp { id },
            Phase::Resolved | Phase::Routed | Phase::Requested if self.rng.random_ratio(1, 40) => {
                Action::SetEce { id, options: 7 }
            }
            Phase::Resolved => Action::ResolveRoute { id },
            Phase::Routed if believed.sought_nobody => return None,
            Phase::Routed => Action::Connect { id, offer: self.offer(if udp { 180 } else { 56 }) },
            Phase::Requested if self.rng.random_ratio(1, 7) => {
                Action::Reject { id, ece: self.rng.random_ratio(1, 5), data: self.data(if udp { 136 } else { 148 }) }
            }
            Phase::Requested => Action::Accept { id, offer: self.offer(if udp { 136 } else { 196 }) },
            Phase::Answered => Action::Establish { id },
            Phase::Accepted if self.rng.random_ratio(1, 4) => Action::Notify { id },
            Phase::Up if self.rng.random_ratio(1, 12) => Action::Notify { id },
            Phase::Up | Phase::Down if core && self.rng.random_ratio(1, 5) => Action::Teardown { id },
            Phase::Up if self.rng.random_ratio(1, 3) => Action::Disconnect { id },
            Phase::Down if self.rng.random_ratio(2, 3) => Action::Disconnect { id },
            Phase::Down | Phase::Over if self.rng.random_ratio(1, 4) => Action::Destroy { id },
            Phase::Listening if believed.is_synchronous() && !believed.has_asked => Action::GetRequest { id },
            Phase::Up | Phase::Down | Phase::Over | Phase::Waits | Phase::Accepted | Phase::Listening => return None,
        })
    }

    /// Any call on any id, in any state.
    fn anything(&mut self) {
        let side = self.side();
        let Some((id, believed)) = self.any_id(side) else { return };
        let udp = believed.space == Space::Udp;
        let core = self.level == Level::Core;
        let action = match self.rng.random_range(0..46) {
            0..3 => Action::Bind { id, at: self.endpoint() },
            3..6 => Action::ResolveAddr { id, src: None, dst: self.endpoint() },
            6 => Action::ResolveAddr { id, src: Some(self.endpoint()), dst: self.endpoint() },
            7..9 => Action::ResolveRoute { id },
            9..11 => return self.listen(side, id),
            11..13 => Action::Connect { id, offer: self.offer(if udp { 180 } else { 56 }) },
            13..15 => Action::Accept { id, offer: self.offer(if udp { 136 } else { 196 }) },
            15..17 => Action::Reject { id, ece: false, data: self.data(if udp { 136 } else { 148 }) },
            17..19 => Action::Establish { id },
            19..23 => Action::Disconnect { id },
            23..25 => Action::Notify { id },
            25..27 => Action::Join { id, group: self.rng.random_range(1..6), send_only: false },
            27..29 => Action::Leave { id, group: self.rng.random_range(1..4) },
            29..33 => Action::SetOption { id, option: self.option() },
            33 => Action::SetEce { id, options: 7 },
            34..36 => Action::AttachQp { id },
            36 => Action::DetachQp { id },
            37..40 => Action::Destroy { id },
            40 => Action::CloseChannel { channel: 2 },
            41 if core => Action::GetRequest { id },
            42..44 if core => Action::Teardown { id },
            _ => Action::Disconnect { id },
        };
        if matches!(action, Action::Listen { .. }) || self.may(side, id, action) {
            self.put(side, action);
        }
    }

    /// Excludes calls that would crash, or that have no reproducible results.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a list of exceptions")]
    fn may(&self, side: SideName, id: Slot, action: Action) -> bool {
        let Some(believed) = self.beliefs.side(side).ids.get(&id) else { return true };
        match action {
            Action::Join { .. } | Action::Leave { .. } if self.network == Network::Iwarp => false,
            // librdmacm finds a membership by its address, so there is at most one for each address.
            Action::Join { group, .. } => !believed.joined[usize::from(group)],
            // librdmacm would dereference a null pointer.
            Action::DetachQp { .. } => believed.has_qp,
            // The request is not answered, and without a path soft-RoCE's GSI QP stops permanently.
            Action::Connect { .. } => !believed.sought_nobody,
            // An id with a route is in a tree by its interface, which the call changes before it refuses
            // (`cma_bind_addr`). The kernel's list is corrupt when the id is destroyed.
            Action::ResolveAddr { dst, .. } if dst.0.is_of_link() => {
                matches!(believed.phase, Phase::Idle | Phase::Bound)
            }
            _ => true,
        }
    }

    fn option(&mut self) -> Opt {
        match self.rng.random_range(0..8) {
            0 => Opt::Tos(self.rng.random_range(0..=255)),
            1..4 => Opt::ReuseAddr(self.rng.random_ratio(2, 3)),
            4..6 => Opt::AfOnly(self.rng.random_ratio(1, 2)),
            // The default time wait of 6.12, or one that is longer than every program.
            _ => Opt::AckTimeout(if self.rng.random_ratio(1, 2) { 17 } else { 22 }),
        }
    }
}
