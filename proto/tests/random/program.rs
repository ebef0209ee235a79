//! A random program for both sides, and the checks after each of its steps and at its end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use cmid_proto::{Acks, CmOption, ConnParam, Ece, IdKey, Limits, PortSpace, RejectReason, Request, State, Time};

use crate::engine::Engine;
use crate::kernel::Network;
use crate::ledger::Ledger;

/// Runs one program and adds the states of its ids to `seen`. `make` builds the engine of a host.
pub(crate) fn run<E: Engine>(
    rng: &mut fastrand::Rng,
    seen: &mut BTreeSet<State>,
    make: impl Fn(&Rc<RefCell<Network>>, usize, &mut fastrand::Rng, Limits) -> E,
) {
    let network = Rc::new(RefCell::new(Network::default()));
    let failing = *rng.choice(&[0, 0, 40, 9]).expect("four");
    let limits = [small(), Limits::LARGE][rng.usize(..2)];
    let limits = |host| Limits { core: u16::try_from(host).ok(), ..limits };
    let mut program = Program {
        sides: [0, 1].map(|host| Side {
            engine: make(&network, host, rng, limits(host)),
            ledger: Ledger::new(failing == 0),
            host,
        }),
        network,
        now: Time(1),
        sync: rng.bool(),
    };
    program.sides.iter_mut().for_each(|side| {
        for acks in [Acks::Explicit, Acks::OnDelivery] {
            if let Ok(channel) = side.engine.open_channel(acks) {
                side.ledger.opened(channel);
            }
        }
    });
    program.network.borrow_mut().failing = failing;
    for _ in 0..rng.u16(20..500) {
        program.step(rng);
        program.check();
        program.sides.iter().for_each(|side| side.note_states(seen));
    }
    program.come_to_rest(rng);
}

fn small() -> Limits {
    Limits { ids: 5, channels: 6, events: 6, groups: 2, ..Limits::SINGLE }
}

struct Side<E> {
    engine: E,
    ledger: Ledger,
    host: usize,
}

struct Program<E> {
    sides: [Side<E>; 2],
    network: Rc<RefCell<Network>>,
    now: Time,
    /// Whether this program uses synchronous mode.
    sync: bool,
}

impl<E: Engine> Program<E> {
    fn step(&mut self, rng: &mut fastrand::Rng) {
        let at = rng.usize(..2);
        match rng.u8(..20) {
            0 => self.sides[at].create(self.sync && rng.u8(..4) == 0, rng),
            1..=7 => self.sides[at].onward(self.now, self.sync, rng),
            8 => self.sides[at].anything(self.now, self.sync, rng),
            9..=11 => self.network.borrow_mut().happen(rng),
            12 | 14 => (0..2).for_each(|at| self.work(at, rng)),
            13 => self.foreign(at, rng),
            15..=17 => drop(self.sides[at].take_events(rng.usize(1..4), rng)),
            18 => drop(self.sides[at].ack_one(rng)),
            _ => self.now = Time(self.now.0 + rng.u64(..20)),
        }
    }

    /// Asserts that keys and ack tokens of the other side are refused, and that the tokens come back.
    fn foreign(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let [one, two] = &mut self.sides;
        let (mine, theirs) = if at == 0 { (one, two) } else { (two, one) };
        if let Some(id) = theirs.some_id(rng) {
            let before = mine.engine.core().clone();
            let request = *rng.choice(&[Request::Destroy, Request::DestroyNow, Request::Disconnect]).expect("three");
            mine.engine.request(id, request, Time::NEVER).expect_err("the id is of the other side");
            assert!(before == *mine.engine.core(), "a request on an id of the other side has changed something");
        }
        if let Some((ack_token, owner)) = theirs.ledger.ack_tokens.pop() {
            let refused = mine.engine.ack(ack_token).expect_err("the ack token is of the other side");
            theirs.ledger.ack_tokens.push((refused.ack_token, owner));
        }
    }

    fn work(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let readable = self.network.borrow().readable(at);
        if let Some((channel, event)) = self.sides[at].engine.work(self.now, &readable, rng) {
            self.note_calls();
            self.sides[at].ledger.delivered(event, channel);
        }
    }

    fn note_calls(&mut self) {
        let log = std::mem::take(&mut self.network.borrow_mut().log);
        for (host, call, outcome) in log {
            self.sides[host].ledger.called(&call, outcome);
        }
    }

    fn check(&mut self) {
        self.note_calls();
        for side in &mut self.sides {
            side.engine.core().check();
            side.ledger.compare(side.engine.core());
        }
    }

    /// Brings everything to rest without further failures; asserts that every request ends and nothing is left.
    fn come_to_rest(&mut self, rng: &mut fastrand::Rng) {
        self.network.borrow_mut().failing = 0;
        self.quiet(rng);
        self.nothing_is_lost();
        for at in 0..2 {
            let side = &mut self.sides[at];
            for id in side.engine.core().ids().collect::<Vec<_>>() {
                side.request(id, Request::Destroy, Time::NEVER);
            }
            self.check();
        }
        self.quiet(rng);
        self.nothing_is_lost();
        for side in &mut self.sides {
            for channel in side.ledger.channels.clone() {
                side.engine.close_channel(channel).expect("nothing is left on the channel");
            }
        }
        self.check();
        for side in &self.sides {
            let core = side.engine.core();
            assert_eq!(
                (core.ids().count(), core.channels().count(), core.summary().groups),
                (0, 0, 0),
                "something is left"
            );
            assert_eq!(core.poll_timeout(), None, "a deadline is left");
            assert!(!side.ledger.strict || self.network.borrow().is_empty(side.host), "the device has something left");
        }
    }

    fn nothing_is_lost(&mut self) {
        for side in &mut self.sides {
            let fault = side.engine.next_fault();
            side.ledger.at_rest(side.engine.core(), &self.network.borrow().read[side.host], fault);
        }
    }

    fn quiet(&mut self, rng: &mut fastrand::Rng) {
        for round in 0.. {
            assert!(round < 10_000, "it does not come to rest");
            let mut moved = false;
            for at in 0..2 {
                let before = self.sides[at].engine.core().clone();
                self.work(at, rng);
                self.check();
                moved |= self.sides[at].engine.has_work() || before != *self.sides[at].engine.core();
                moved |= self.sides[at].take_events(usize::MAX, rng);
                while self.sides[at].ack_one(rng) {
                    moved = true;
                    self.check();
                }
            }
            if !moved {
                return;
            }
        }
    }
}

impl<E: Engine> Side<E> {
    fn note_states(&self, seen: &mut BTreeSet<State>) {
        let core = self.engine.core();
        seen.extend(core.ids().filter_map(|id| core.state(id)));
    }

    fn some_id(&self, rng: &mut fastrand::Rng) -> Option<IdKey> {
        let ids: Vec<_> = self.ledger.ids().collect();
        rng.choice(ids)
    }

    fn create(&mut self, sync: bool, rng: &mut fastrand::Rng) {
        let channel = if sync { None } else { rng.choice(self.ledger.channels.clone()) };
        let port_space = *rng.choice(&[PortSpace::Tcp, PortSpace::Tcp, PortSpace::Ib, PortSpace::Udp]).expect("four");
        if let Ok(id) = self.engine.create_id(channel, port_space) {
            self.ledger.created(id, channel);
        }
    }

    /// Makes a request. A refused one must not change the core.
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) {
        let before = self.engine.core().clone();
        match self.engine.request(id, request, deadline) {
            Ok(ended) => self.ledger.requested(id, &request, ended, &before),
            Err(cmid_proto::Error::Refused(refused)) => {
                assert!(before == *self.engine.core(), "{refused} has changed something");
                let state = before.state(id);
                let can_go = state.is_none() || state == Some(State::Destroying);
                assert!(request != Request::Destroy || can_go, "a destroy of {id} is refused: {refused}");
            }
            Err(error) => {
                assert!(!self.ledger.strict || Ledger::may_fail(&request), "{request:?}: {error}");
                self.ledger.failed(id, &request);
            }
        }
    }

    /// Makes the request that leads an id onward.
    fn onward(&mut self, now: Time, sync: bool, rng: &mut fastrand::Rng) {
        let Some(id) = self.some_id(rng) else { return };
        let Some(state) = self.engine.core().state(id) else { return };
        let param = ConnParam { qp_num: 17, ..ConnParam::default() };
        let request = match state {
            State::Idle | State::Bound if rng.u8(..3) == 0 => Request::Listen { backlog: rng.i32(0..4) },
            State::Idle | State::Bound => {
                Request::ResolveAddr { src: None, dst: "10.0.0.2:7471".parse().expect("an address") }
            }
            State::AddrResolved if rng.bool() => Request::AttachQp,
            State::AddrResolved => Request::ResolveRoute,
            State::RouteResolved => Request::Connect { param, private_data: b"connect" },
            State::Requested | State::SidrReqReceived if rng.u8(..5) == 0 => {
                Request::Reject { reason: RejectReason::Consumer, private_data: b"no" }
            }
            State::Requested | State::SidrReqReceived => Request::Accept { param, private_data: b"accept" },
            State::Responded => Request::Establish,
            State::Connected | State::PeerClosed if rng.bool() => Request::Teardown,
            State::Connected | State::PeerClosed => Request::Disconnect,
            State::TimeWait | State::Closed | State::Failed | State::Removed | State::SidrResolved => Request::Destroy,
            State::AddrResolving
            | State::RouteResolving
            | State::Connecting
            | State::Accepting
            | State::Disconnecting
            | State::Closing
            | State::SidrReqSent
            | State::Listening
            | State::Destroying => return self.anything(now, sync, rng),
        };
        self.request(id, request, deadline(now, rng));
    }

    /// Makes any request in any state.
    fn anything(&mut self, now: Time, sync: bool, rng: &mut fastrand::Rng) {
        let Some(id) = self.some_id(rng) else { return };
        let param = ConnParam { qp_num: 18, ..ConnParam::default() };
        let group = ["239.1.1.1:0", "239.1.1.2:0"][rng.usize(..2)].parse().expect("an address");
        let request = match rng.u8(..26) {
            0 => Request::Bind { addr: ["10.0.0.1:0", "0.0.0.0:7"][rng.usize(..2)].parse().expect("an address") },
            1 => Request::AttachQp,
            2 => Request::DetachQp,
            3 => Request::Connect { param, private_data: &[] },
            4 => Request::Accept { param, private_data: &[] },
            5 => Request::Reject { reason: RejectReason::Ece, private_data: &[] },
            6 => Request::Establish,
            7 => Request::Disconnect,
            8 => Request::Teardown,
            9 => Request::Notify,
            10 => Request::GetRequest,
            11 | 12 => Request::Join { addr: group, send_only: rng.bool() },
            13 | 14 => match self.engine.core().group_at(id, group) {
                Some(group) => Request::Leave { group },
                None => Request::Join { addr: group, send_only: false },
            },
            15 => Request::SetOption { option: CmOption::Tos(rng.u8(..)) },
            16 => Request::SetEce { ece: Ece { vendor_id: 1, options: 2 } },
            17 if rng.u8(..3) == 0 => Request::DestroyNow,
            17 => Request::Destroy,
            18 if sync => Request::Migrate { to: None },
            19 if sync => {
                if let Some(new) = self.engine.rename(id) {
                    self.ledger.renamed(id, new);
                }
                return;
            }
            20 => Request::ResolveRoute,
            _ => match rng.choice(self.ledger.channels.clone()) {
                Some(channel) => Request::Migrate { to: Some(channel) },
                None => return,
            },
        };
        self.request(id, request, deadline(now, rng));
    }

    /// Takes events; returns whether there was one.
    fn take_events(&mut self, most: usize, rng: &mut fastrand::Rng) -> bool {
        let mut channels = self.ledger.channels.clone();
        rng.shuffle(&mut channels);
        let private: Vec<_> = self.engine.core().channels().filter(|key| !channels.contains(key)).collect();
        channels.extend(private);
        let mut left = most;
        for channel in channels {
            while left > 0 {
                let Some(event) = self.engine.next_event(channel) else { break };
                left -= 1;
                self.ledger.delivered(event, channel);
            }
        }
        left < most
    }

    fn ack_one(&mut self, rng: &mut fastrand::Rng) -> bool {
        match self.ledger.some_receipt(rng) {
            Some(ack_token) => {
                let (owner, is_owed) = (ack_token.owner(), self.ledger.owes(ack_token.owner()));
                assert_eq!(self.engine.ack(ack_token).is_ok(), is_owed, "an ack for {owner}");
                true
            }
            None => false,
        }
    }
}

fn deadline(now: Time, rng: &mut fastrand::Rng) -> Time {
    if rng.u8(..3) == 0 { Time(now.0 + rng.u64(1..60)) } else { Time::NEVER }
}
