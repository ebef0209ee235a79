//! Generates programs with calls of connection management.
//!
//! The generator assumes that every call succeeds. It mostly continues with the next call of an id's normal life, and
//! sometimes with an arbitrary one. If an assumption is wrong, the program makes calls in a wrong order, which is
//! intended.

use cmid_model::Input;
use cmid_proto::{CmOption, PortSpace};

use crate::address::{Endpoint, Ip};
use crate::generate::Bytes;
use crate::prediction::{Beliefs, Believed, Phase};
use crate::program::{Action, CHILDREN, ChannelNo, IdCall, Level, Network, Offer, Program, SideName, Slot, Step};

/// The maximum number of groups of more than one step, each with one boundary. The number of schedules grows with it.
const RACES_MAX: usize = 2;

/// The maximum number of pauses before the end.
const PAUSES_MAX: usize = 2;

/// The program of these bytes.
pub(crate) fn program(network: Network, seed: u64, (steps, listeners, once): &Bytes) -> Program {
    let mut input = Input::graded(once);
    let level = [Level::Device, Level::Core][input.below(2)];
    let ends_calmly = input.below(3) > 0;
    let mut maker = Maker {
        input,
        level,
        network,
        steps: Vec::new(),
        beliefs: Beliefs::default(),
        races: 0,
        pauses: 0,
        next_qp: 0,
    };
    for side in [SideName::B, SideName::A] {
        for _ in 0..maker.input.below(4) {
            maker.open(side);
        }
    }
    for bytes in listeners {
        maker.input = Input::graded(bytes);
        maker.listener();
    }
    for bytes in steps {
        maker.input = Input::graded(bytes);
        maker.step();
    }
    if ends_calmly {
        maker.put(SideName::A, Action::LetTimePass);
    }
    Program { seed, level, network, steps: maker.steps }
}

/// The next step.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Reads any channel: an id in synchronous mode gets its events without one.
    Read(Option<ChannelNo>),
    Call(Slot, Believed),
}

struct Maker<'a> {
    input: Input<'a>,
    level: Level,
    network: Network,
    steps: Vec<Step>,
    beliefs: Beliefs,
    races: usize,
    pauses: usize,
    next_qp: u8,
}

impl Maker<'_> {
    /// Makes a listener, mostly, and ids that may connect to it.
    fn listener(&mut self) {
        let space = if self.input.once_in(4) { PortSpace::Udp } else { PortSpace::Tcp };
        self.create(SideName::B, space);
        if self.input.below(10) > 0 {
            let id = self.beliefs.side(SideName::B).last_made();
            let ip = match self.input.below(40) {
                // Of a listener only: in the VM the way there, and from there, is a wire.
                0 => Ip::OfOther,
                1..29 => Ip::OfB,
                29..36 => Ip::Any,
                36..39 => Ip::OfB6,
                39 if self.input.below(2) == 0 => Ip::Any6,
                _ => Ip::Link6,
            };
            let port = 1 + self.input.below(3) as u8;
            self.put(SideName::B, Action::On(id, IdCall::Bind(Endpoint(ip, port))));
            self.listen(SideName::B, id);
        }
        let clients = self.input.pick(&[0, 1, 1, 1, 1, 2, 2, 2, 2]).unwrap_or_default();
        // A port of TCP has other rules.
        if self.network == Network::Roce && self.input.once_in(4) {
            self.rivals(space);
        }
        for _ in 0..clients {
            let space = if self.input.once_in(12) { PortSpace::Udp } else { space };
            self.create(SideName::A, space);
        }
    }

    /// Makes ids that share a port, or want to, of which some listen.
    fn rivals(&mut self, space: PortSpace) {
        for _ in 0..2 + self.input.below(2) {
            self.create(SideName::B, space);
            let id = self.beliefs.side(SideName::B).last_made();
            self.share(id);
            let ip = self.input.pick(&[Ip::OfB, Ip::OfB, Ip::Any, Ip::Any6, Ip::Any6, Ip::OfB6]).unwrap_or(Ip::OfB);
            self.put(SideName::B, Action::On(id, IdCall::Bind(Endpoint(ip, 4))));
            self.share(id);
            if self.input.below(3) < 2 {
                self.listen(SideName::B, id);
            }
        }
    }

    /// Sets options for the sharing of a port.
    fn share(&mut self, id: Slot) {
        for _ in 0..self.input.below(3) {
            let option = match self.input.below(4) {
                value @ 0..2 => CmOption::ReuseAddr(value == 0),
                value => CmOption::AfOnly(value == 2),
            };
            self.put(SideName::B, Action::On(id, IdCall::SetOption(option)));
        }
    }

    fn open(&mut self, side: SideName) {
        let channel = self.beliefs.side(side).channels.len() as ChannelNo;
        let explicit_acks = self.input.once_in(3);
        self.put(side, Action::OpenChannel { channel, explicit_acks });
    }

    /// Creates an id, and the first channel if there is none yet.
    fn create(&mut self, side: SideName, space: PortSpace) {
        let id = self.beliefs.side(side).next_own();
        if id + 1 >= CHILDREN {
            return;
        }
        let space = if self.network == Network::Iwarp { PortSpace::Tcp } else { space };
        let synchronous = self.level == Level::Core && self.input.once_in(6);
        if !synchronous && self.beliefs.side(side).channels.is_empty() {
            self.open(side);
        }
        let channel = if synchronous { None } else { self.channel(side) };
        self.put(side, Action::Create { id, channel, space });
    }

    fn listen(&mut self, side: SideName, id: Slot) {
        let backlog = if self.input.once_in(6) { self.input.below(4) as i32 - 1 } else { 8 };
        self.put(side, Action::On(id, IdCall::Listen(backlog)));
    }

    fn channel(&mut self, side: SideName) -> Option<ChannelNo> {
        self.input.pick(&self.beliefs.side(side).channels)
    }

    fn put(&mut self, side: SideName, action: Action) {
        let follows = self.steps.last().is_some_and(|last| last.action.is_call() && last.side != side && !last.races);
        let races = action.is_call() && follows && self.races < RACES_MAX && self.input.once_in(4);
        self.races += usize::from(races);
        self.beliefs.assume(side, &action);
        self.steps.push(Step { side, action, races });
    }

    fn step(&mut self) {
        match self.input.below(100) {
            0..76 => self.sensible(),
            76..80 => {
                let side = self.side();
                self.read(side, None);
            }
            80..82 => {
                let side = self.side();
                let space = match self.input.below(12) {
                    0..3 => PortSpace::Udp,
                    3 => PortSpace::Ipoib,
                    _ => PortSpace::Tcp,
                };
                self.create(side, space);
            }
            82..90 => self.migrate(),
            90..99 => self.anything(),
            _ if self.pauses == PAUSES_MAX => self.sensible(),
            _ => {
                self.pauses += 1;
                self.put(SideName::A, Action::LetTimePass);
            }
        }
    }

    fn side(&mut self) -> SideName {
        [SideName::B, SideName::A][self.input.below(2)]
    }

    /// Reads this channel, or any.
    fn read(&mut self, side: SideName, channel: Option<ChannelNo>) {
        if self.level == Level::Core {
            self.put(side, Action::Turn);
        }
        let Some(channel) = channel.or_else(|| self.channel(side)) else { return };
        let most = if self.input.once_in(6) { Some(1) } else { None };
        self.put(side, Action::Read { channel, most });
        if self.level == Level::Core && self.input.below(3) > 0 {
            let most = 1 + self.input.below(6) as u8;
            self.put(side, Action::Ack(most));
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
        let to = if self.level == Level::Core && self.input.once_in(5) { None } else { self.channel(side) };
        if to.is_some() || self.level == Level::Core {
            self.put(side, Action::On(id, IdCall::Migrate(to)));
        }
    }

    fn any_id(&mut self, side: SideName) -> Option<(Slot, Believed)> {
        let ids: Vec<(Slot, Believed)> = self.beliefs.side(side).ids.iter().map(|(&id, &how)| (id, how)).collect();
        self.input.pick(&ids)
    }

    fn endpoint(&mut self) -> Endpoint {
        let port = self.input.below(5) as u8;
        let ip = match self.input.below(80) {
            0..23 => Ip::OfB,
            23 => Ip::ThisNetwork,
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
        let qp = if self.input.once_in(15) { 1 } else { self.next_qp };
        // Sometimes more than the device supports.
        let mut depth = || if self.input.once_in(40) { 129 } else { [0, 1, 4, 7, 128, 255][self.input.below(6)] };
        let (serves, starts) = (depth(), depth());
        // The device lowers 8 to 7; the core refuses it.
        let most = if self.level == Level::Core { 7 } else { 8 };
        let rnr = (self.input.below(9) as u8).min(most);
        Offer { qp, serves, starts, rnr, data: self.data(limit) }
    }

    /// A length of private data, sometimes one byte too long.
    fn data(&mut self, limit: u8) -> u8 {
        match self.input.below(30) {
            0 => limit + 1,
            1..4 => limit,
            4..7 => 0,
            _ => 1 + self.input.below(31) as u8,
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
            match self.input.pick(&choices) {
                Some((side, Next::Read(channel))) => return self.read(side, channel),
                Some((side, Next::Call(id, believed))) => {
                    if let Some(call) = self.next_of(side, id, believed) {
                        return self.put(side, Action::On(id, call));
                    }
                }
                None => return,
            }
        }
    }

    fn next_of(&mut self, side: SideName, id: Slot, believed: Believed) -> Option<IdCall> {
        let udp = believed.space == PortSpace::Udp;
        // On iWARP a connection needs a QP.
        let of_ten = if self.network == Network::Iwarp { 9 } else { 1 };
        let wants_qp = !believed.has_qp && self.input.below(10) < of_ten;
        let core = self.level == Level::Core;
        let joined = (0..8).find(|&group| believed.joined[usize::from(group)]);
        Some(match believed.phase {
            Phase::Idle | Phase::Bound if self.input.once_in(12) => {
                let src = if self.input.once_in(3) { Some(self.endpoint()) } else { None };
                let dst = self.endpoint();
                let many = matches!(dst.0, Ip::Broadcast | Ip::Everybody | Ip::Group(_));
                // Addresses for which the loopback source makes a difference.
                let src = if many && self.input.once_in(3) { Some(Endpoint(Ip::Loopback, 0)) } else { src };
                IdCall::ResolveAddr { src, dst }
            }
            Phase::Idle | Phase::Bound => {
                let dst = self.beliefs.side(side.other()).listening(believed.space)?;
                // A listener on `::` takes requests over IPv4, too.
                let over_ipv4 = dst.0 == Ip::OfB6 && self.input.once_in(2);
                let dst = if over_ipv4 { Endpoint(Ip::OfB, dst.1) } else { dst };
                let near = if dst.0.is_ipv6() { Ip::OfA6 } else { Ip::OfA };
                let src = if self.input.once_in(6) { Some(Endpoint(near, 0)) } else { None };
                IdCall::ResolveAddr { src, dst }
            }
            Phase::Resolved if joined.is_some() && self.input.once_in(3) => IdCall::Leave(joined?),
            Phase::Resolved if udp && self.input.once_in(4) => {
                let call = IdCall::Join { group: 1 + self.input.below(5) as u8, send_only: self.input.once_in(3) };
                return self.may(side, id, call).then_some(call);
            }
            Phase::Resolved | Phase::Routed | Phase::Requested if wants_qp && self.input.once_in(6) => {
                IdCall::AttachHugeQp
            }
            Phase::Resolved | Phase::Routed | Phase::Requested if wants_qp => IdCall::AttachQp,
            Phase::Resolved | Phase::Routed | Phase::Requested if self.input.once_in(40) => match self.input.below(2) {
                1 if !udp => IdCall::SetOption(self.ack_timeout(believed.phase)),
                _ => IdCall::SetEce(7),
            },
            Phase::Resolved => IdCall::ResolveRoute,
            Phase::Routed if believed.sought_nobody => return None,
            Phase::Routed => IdCall::Connect(self.offer(if udp { 180 } else { 56 })),
            Phase::Requested if self.input.once_in(7) => {
                IdCall::Reject { ece: self.input.once_in(5), data: self.data(if udp { 136 } else { 148 }) }
            }
            Phase::Requested => IdCall::Accept(self.offer(if udp { 136 } else { 196 })),
            Phase::Answered => IdCall::Establish,
            Phase::Accepted if self.input.once_in(4) => IdCall::Notify,
            Phase::Up if self.input.once_in(12) => IdCall::Notify,
            Phase::Up | Phase::Down if core && self.input.once_in(5) => IdCall::Teardown,
            Phase::Up if self.input.once_in(3) => IdCall::Disconnect,
            Phase::Down if self.input.below(3) > 0 => IdCall::Disconnect,
            Phase::Down | Phase::Over if self.input.once_in(4) => IdCall::Destroy,
            Phase::Listening if believed.is_synchronous() && !believed.has_asked => IdCall::GetRequest,
            Phase::Up | Phase::Down | Phase::Over | Phase::Waits | Phase::Accepted | Phase::Listening => return None,
        })
    }

    /// Any call on any id, in any state.
    fn anything(&mut self) {
        let side = self.side();
        let Some((id, believed)) = self.any_id(side) else { return };
        let udp = believed.space == PortSpace::Udp;
        let core = self.level == Level::Core;
        let call = match self.input.below(46) {
            0..3 => IdCall::Bind(self.endpoint()),
            3..6 => IdCall::ResolveAddr { src: None, dst: self.endpoint() },
            6 => IdCall::ResolveAddr { src: Some(self.endpoint()), dst: self.endpoint() },
            7..9 => IdCall::ResolveRoute,
            9..11 => return self.listen(side, id),
            11..13 => IdCall::Connect(self.offer(if udp { 180 } else { 56 })),
            13..15 => IdCall::Accept(self.offer(if udp { 136 } else { 196 })),
            15..17 => IdCall::Reject { ece: false, data: self.data(if udp { 136 } else { 148 }) },
            17..19 => IdCall::Establish,
            19..23 => IdCall::Disconnect,
            23..25 => IdCall::Notify,
            25..27 => IdCall::Join { group: 1 + self.input.below(5) as u8, send_only: false },
            27..29 => IdCall::Leave(1 + self.input.below(3) as u8),
            29..33 => IdCall::SetOption(self.option(believed.phase)),
            33 => IdCall::SetEce(7),
            34..36 => IdCall::AttachQp,
            36 => IdCall::DetachQp,
            37..40 => IdCall::Destroy,
            40 => return self.put(side, Action::CloseChannel(2)),
            41 if core => IdCall::GetRequest,
            42..44 if core => IdCall::Teardown,
            _ => IdCall::Disconnect,
        };
        if self.may(side, id, call) {
            self.put(side, Action::On(id, call));
        }
    }

    /// Excludes calls that would crash, or that have no reproducible results.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a list of exceptions")]
    fn may(&self, side: SideName, id: Slot, call: IdCall) -> bool {
        let Some(believed) = self.beliefs.side(side).ids.get(&id) else { return true };
        match call {
            IdCall::Join { .. } | IdCall::Leave(_) if self.network == Network::Iwarp => false,
            // librdmacm finds a membership by its address, so there is at most one for each address.
            IdCall::Join { group, .. } => !believed.joined[usize::from(group)],
            // librdmacm would dereference a null pointer.
            IdCall::DetachQp => believed.has_qp,
            // The request is not answered, and without a path soft-RoCE's GSI QP stops permanently.
            IdCall::Connect(_) => !believed.sought_nobody,
            // An id with a route is in a tree by its interface, which the call changes before it refuses
            // (`cma_bind_addr`). The kernel's list is corrupt when the id is destroyed.
            IdCall::ResolveAddr { dst, .. } if dst.0.is_of_link() => {
                matches!(believed.phase, Phase::Idle | Phase::Bound)
            }
            _ => true,
        }
    }

    fn option(&mut self, phase: Phase) -> CmOption {
        match self.input.below(8) {
            0 => CmOption::Tos(self.input.any()),
            1..4 => CmOption::ReuseAddr(self.input.below(3) > 0),
            4..6 => CmOption::AfOnly(self.input.once_in(2)),
            _ => self.ack_timeout(phase),
        }
    }

    /// An ACK timeout. Before the route it changes the time wait, which is then the default one of 6.12, or longer than
    /// every program.
    fn ack_timeout(&mut self, phase: Phase) -> CmOption {
        let values: &[u8] = match phase {
            Phase::Routed | Phase::Requested | Phase::Answered => &[0, 1, 14, 17, 31],
            Phase::Idle
            | Phase::Bound
            | Phase::Listening
            | Phase::Waits
            | Phase::Resolved
            | Phase::Accepted
            | Phase::Up
            | Phase::Down
            | Phase::Over => &[0, 16, 17, 22],
        };
        CmOption::AckTimeout(self.input.pick(values).unwrap_or_default())
    }
}
