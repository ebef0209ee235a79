//! Two hosts on the simulated fabric, each with a core driven by [`Drive`]. Messages are lost, delayed and
//! retransmitted; links and devices are removed and added; channels are paused, and reads fail. If the input selects
//! it, events reach a core twice or too late.
//!
//! If the device reports each event once and in order, there are no faults, no call delays a destroy for a minute, and
//! each event is delivered once and in order, and each request that waits ends once. In all cases every step ends, and at the end nothing remains, including on the fabric.

mod ledger;
mod unreliable;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use cmid_proto::{
    AckToken, Acks, ChannelKey, ConnParam, Drive, Error, Fault, IdKey, Limits, Next, PortSpace, Request, State, Time,
};
use cmid_sim::{Config, Fabric, Host};

use crate::input::Input;
use crate::methods::make;
use crate::say::say;
use crate::script;
use ledger::Ledger;
use unreliable::Unreliable;

/// The address of each host, and the port of its listeners.
const ADDRS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
const PORT: u16 = 7471;

/// Everything must be at rest after so many turns or due times.
const ENOUGH: usize = 2_000;

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(&mut input);
    while !input.is_over() {
        let at = input.below(2);
        pair.step(at, &mut input);
        pair.look();
    }
    pair.rest();
}

struct Side {
    drive: Drive<Unreliable>,
    host: Host,
    channels: Vec<ChannelKey>,
    ack_tokens: Vec<AckToken>,
    /// Ids that were to be destroyed without their acks.
    waived: BTreeSet<IdKey>,
    ledger: Ledger,
}

struct Pair {
    fabric: Fabric,
    sides: [Side; 2],
    /// Whether the devices report each event once and in order.
    honest: bool,
    qps: u32,
}

fn addr_of(at: usize) -> SocketAddr {
    SocketAddr::new(ADDRS[at], PORT)
}

impl Pair {
    fn new(input: &mut Input<'_>) -> Self {
        let limits = script::limits(input);
        let honest = !input.once_in(3);
        let fabric = Fabric::new(Config { seed: input.below(256) as u64, ..Config::default() });
        let sides = ADDRS.map(|addr| {
            let host = fabric.host(&[addr]);
            let drive = Drive::new(Unreliable::new(host.device()), limits);
            let (ack_tokens, waived, ledger) = (Vec::new(), BTreeSet::new(), Ledger::default());
            Side { drive, host, channels: Vec::new(), ack_tokens, waived, ledger }
        });
        say(|| format!("{} devices, {limits:?}", if honest { "honest" } else { "unreliable" }));
        let mut pair = Pair { fabric, sides, honest, qps: 0 };
        pair.listen(PortSpace::Tcp);
        pair
    }

    /// Starts a listener.
    fn listen(&mut self, port_space: PortSpace) {
        let Side { drive, channels, .. } = &mut self.sides[1];
        let listening = drive.open_channel(Acks::OnDelivery).and_then(|channel| {
            channels.push(channel);
            let id = drive.create_id(Some(channel), port_space)?;
            drive.bind(id, addr_of(1))?;
            drive.listen(id, 4)
        });
        assert_eq!(listening, Ok(()));
    }

    fn step(&mut self, at: usize, input: &mut Input<'_>) {
        match input.below(16) {
            0 => self.open_channel(at, input),
            1 | 2 => self.create(at, input),
            3..=6 => self.lead(at, input),
            7 => self.request(at, input),
            8 | 9 => self.turn(at),
            10 | 11 => self.take(at, input),
            12 => self.ack(at, input),
            13 => self.disturb(at, input),
            _ => self.pass(input),
        }
    }

    fn open_channel(&mut self, at: usize, input: &mut Input<'_>) {
        let side = &mut self.sides[at];
        let opened = side.drive.open_channel(script::acks(input));
        side.channels.extend(opened);
    }

    fn create(&mut self, at: usize, input: &mut Input<'_>) {
        let side = &mut self.sides[at];
        let on = if input.once_in(4) { None } else { input.pick(&side.channels) };
        let space = [PortSpace::Tcp, PortSpace::Tcp, PortSpace::Udp][input.below(3)];
        let created = side.drive.create_id(on, space);
        if on.is_none() {
            created.iter().for_each(|&id| side.ledger.is_sync(id));
        }
        say(|| format!("{at}: creates {created:?} on {on:?}"));
    }

    fn some_id(&self, at: usize, input: &mut Input<'_>) -> Option<IdKey> {
        let ids: Vec<_> = self.sides[at].drive.core().ids().collect();
        input.pick(&ids)
    }

    /// Advances an id through its life cycle; random choices alone rarely get far.
    fn lead(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(id) = self.some_id(at, input) else { return };
        for _ in 0..=input.below(8) {
            self.one_step(at, id, input);
            self.look();
            self.fabric.next_due().into_iter().for_each(|due| self.fabric.advance_to(due));
            self.turn(0);
            self.turn(1);
            if let Some(home) = self.sides[at].drive.core().channel(id) {
                self.take_from(at, home);
            }
        }
    }

    /// The usual next step of an application with an id.
    fn one_step(&mut self, at: usize, id: IdKey, input: &mut Input<'_>) {
        let core = self.sides[at].drive.core();
        self.qps += 1;
        let param = ConnParam { qp_num: self.qps, ..ConnParam::default() };
        let request = match core.state(id) {
            Some(State::Idle) if input.once_in(2) => Request::Bind { addr: addr_of(at) },
            Some(State::Bound) if input.once_in(2) => Request::Listen { backlog: 4 },
            Some(State::Idle | State::Bound) => Request::ResolveAddr { src: None, dst: addr_of(1 - at) },
            Some(State::AddrResolved) => Request::ResolveRoute,
            Some(State::RouteResolved) => Request::Connect { param, private_data: b"hello" },
            Some(State::Requested | State::SidrReqReceived) => Request::Accept { param, private_data: b"welcome" },
            Some(State::Responded) => Request::Establish,
            Some(State::Connected | State::PeerClosed) if input.once_in(2) => Request::Teardown,
            Some(State::Connected | State::PeerClosed) => Request::Disconnect,
            Some(State::Listening) if core.id_info(id).is_some_and(|it| it.is_sync) => Request::GetRequest,
            Some(_) | None => return,
        };
        self.submit(at, id, request, input);
    }

    fn request(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(id) = self.some_id(at, input) else { return };
        let side = &self.sides[at];
        let groups: Vec<_> = script::GROUPS.iter().filter_map(|&addr| side.drive.core().group_at(id, addr)).collect();
        let request = script::request(input, &side.channels, &groups);
        self.submit(at, id, request, input);
    }

    fn submit(&mut self, at: usize, id: IdKey, request: Request<'static>, input: &mut Input<'_>) {
        let drive = &mut self.sides[at].drive;
        // Seconds, because so long take those of the kernel.
        let deadline = match input.below(8) {
            0..5 => Time::NEVER,
            soon => drive.within(Duration::from_secs(1 << (3 * (soon - 5)))),
        };
        let done = make(drive, id, request, deadline);
        say(|| format!("{at}: {request:?} of {id}: {done:?}, {:?}", drive.core().state(id)));
        if request == Request::DestroyNow && !matches!(done, Err(Error::Refused(_))) {
            self.sides[at].waived.insert(id);
        }
        if let Ok(progress) = done {
            self.sides[at].ledger.requested(id, &request, progress);
        }
        let fault = matches!(done, Err(Error::Fault(_)));
        assert!(!fault || !self.honest, "{request:?} of {id}: {done:?}");
    }

    fn turn(&mut self, at: usize) {
        let Side { drive, channels, .. } = &mut self.sides[at];
        drive.set_now(self.fabric.now());
        channels_of(drive, channels).collect::<Vec<_>>().into_iter().for_each(|line| drive.readable(line));
        let failed = |drive: &Drive<Unreliable>| {
            channels_of(drive, channels)
                .filter(|&it| drive.core().channel_info(it).is_some_and(|it| it.has_failed))
                .count()
        };
        let before = failed(drive);
        let mut turn = drive.run(64);
        if failed(drive) > before {
            // What waited for its events is due since then.
            turn = drive.run(0);
        }
        let due = drive.next_timeout().is_some_and(|due| due <= drive.now());
        assert!(!due, "a deadline has passed and nothing has happened: {turn:?}");
    }

    fn take(&mut self, at: usize, input: &mut Input<'_>) {
        if let Some(home) = self.some_id(at, input).and_then(|id| self.sides[at].drive.core().channel(id)) {
            self.take_from(at, home);
        }
    }

    fn take_from(&mut self, at: usize, channel: ChannelKey) -> bool {
        let side = &mut self.sides[at];
        let event = side.drive.next_event(channel);
        if self.honest {
            side.drive.device_mut().reported.drain(..).for_each(|it| side.ledger.reported(it));
            event.iter().for_each(|event| side.ledger.delivered(event));
        }
        let Some(event) = event else { return false };
        say(|| format!("{at}: takes {} of {}, status {}", event.kind, event.id, event.status));
        side.ack_tokens.extend(event.ack_token);
        true
    }

    fn ack(&mut self, at: usize, input: &mut Input<'_>) {
        let side = &mut self.sides[at];
        if !side.ack_tokens.is_empty() {
            let ack_token = side.ack_tokens.remove(input.below(side.ack_tokens.len()));
            let is_owed = !side.waived.contains(&ack_token.owner());
            assert_eq!(side.drive.ack(ack_token).is_ok(), is_owed, "an ack token is good once");
        }
    }

    /// Advances time by some span or to the next timer. Both drives then make a turn.
    fn pass(&mut self, input: &mut Input<'_>) {
        match input.below(4) {
            0 => self.fabric.advance_by(Duration::from_micros(5)),
            1 => self.fabric.advance_by(Duration::from_secs(1 << input.below(8))),
            _ => self.fabric.next_due().into_iter().for_each(|due| self.fabric.advance_to(due)),
        }
        self.turn(0);
        self.turn(1);
    }

    fn disturb(&mut self, at: usize, input: &mut Input<'_>) {
        let what = input.below(20);
        say(|| format!("{at}: disturbance {what}"));
        let Side { drive, host, .. } = &mut self.sides[at];
        match what {
            0 | 1 => self.fabric.set_loss(0.3),
            2 => self.fabric.set_loss(1.0),
            3 => self.fabric.set_loss(0.0),
            4 => host.set_link(false),
            5 | 6 => host.set_link(true),
            7 => host.change_link_addr(),
            8 => host.fail_over(),
            9 => host.remove_device(),
            10 => host.add_device(),
            11 => host.fail_next_join(-22),
            12 => host.lose_group(script::GROUPS[0].ip()),
            13 => drive.device_mut().fail_reads(1 + input.below(4)),
            14 => drive.device_mut().fail_reads((1 + input.below(4)) * usize::from(Limits::READ_FAILURES_MAX)),
            15..=17 => self.pause(at, input),
            _ if self.honest => {}
            _ => drive.device_mut().confuse(1 + input.below(7)),
        }
    }

    /// Pauses the reading of a channel, or ends that.
    fn pause(&mut self, at: usize, input: &mut Input<'_>) {
        let Side { drive, channels, .. } = &mut self.sides[at];
        let Some(channel) = input.pick(&channels_of(drive, channels).collect::<Vec<_>>()) else { return };
        let paused = !drive.core().channel_info(channel).is_some_and(|it| it.is_paused);
        let done = if paused { drive.pause_channel(channel) } else { drive.resume_channel(channel) };
        say(|| format!("{at}: {} {channel}: {done:?}", if paused { "pauses" } else { "resumes" }));
        let is_so = drive.core().channel_info(channel).is_some_and(|it| it.is_paused) == paused;
        assert!(is_so || done.is_err(), "{channel} is to be paused: {paused}");
    }

    /// All channels are read again, and all reads succeed.
    fn resume(&mut self) {
        for Side { drive, channels, .. } in &mut self.sides {
            drive.device_mut().fail_reads(0);
            for channel in channels_of(drive, channels).collect::<Vec<_>>() {
                let _ = drive.resume_channel(channel);
            }
        }
    }

    fn look(&mut self) {
        for side in &mut self.sides {
            side.drive.core().check();
            while let Some(fault) = side.drive.next_fault() {
                say(|| format!("fault: {fault}"));
                let of_read = matches!(fault, Fault::Read { .. } | Fault::Channel { .. });
                assert!(of_read || !self.honest, "{fault}");
            }
            if self.honest {
                assert_eq!(side.drive.core().summary().counters.faults, 0);
            }
        }
        let stalls = self.fabric.counters().stalls;
        assert!(stalls == 0 || !self.honest, "{stalls} destroys would take more than a minute");
    }

    /// Reads, takes and acks all events.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < ENOUGH, "it does not come to rest");
            let mut any = false;
            for at in 0..2 {
                self.turn(at);
                let side = &mut self.sides[at];
                any |= side.drive.run(64) == Next::Again;
                for ack_token in std::mem::take(&mut side.ack_tokens) {
                    any |= side.drive.ack(ack_token).is_ok();
                }
                let core = side.drive.core();
                let mut homes = side.channels.clone();
                homes.extend(core.ids().filter_map(|id| core.channel(id)));
                for home in homes {
                    while self.take_from(at, home) {
                        any = true;
                    }
                    any |= self.sides[at].drive.core().may_have_event(home);
                }
            }
            self.look();
            if !any {
                break;
            }
        }
        self.nothing_is_lost();
    }

    fn nothing_is_lost(&self) {
        for side in self.sides.iter().filter(|_| self.honest) {
            side.ledger.at_rest(side.drive.core());
        }
    }

    /// Ends everything, in any state of the network.
    fn rest(mut self) {
        say(|| "it comes to rest".to_owned());
        for side in &mut self.sides {
            side.drive.device_mut().confuse(0);
        }
        self.resume();
        self.settle();
        for at in 0..2 {
            let Side { drive, ledger, .. } = &mut self.sides[at];
            for id in drive.core().ids().collect::<Vec<_>>() {
                if let Ok(progress) = drive.destroy(id, Time::NEVER) {
                    ledger.requested(id, &Request::Destroy, progress);
                }
            }
        }
        self.settle();
        for Side { drive, channels, .. } in &mut self.sides {
            for channel in channels.drain(..) {
                assert!(drive.close_channel(channel).is_ok(), "{channel} cannot be closed: {:?}", drive.core());
            }
            let core = drive.core();
            assert_eq!((core.ids().count(), core.channels().count(), core.summary().groups), (0, 0, 0));
            assert_eq!((drive.next_timeout(), drive.has_work()), (None, false));
        }
        for turn in 0.. {
            assert!(turn < ENOUGH, "the fabric does not come to rest");
            let Some(due) = self.fabric.next_due() else { break };
            self.fabric.advance_to(due);
        }
    }
}

/// The channels that an application knows, and those of its ids.
fn channels_of<'a>(drive: &'a Drive<Unreliable>, open: &'a [ChannelKey]) -> impl Iterator<Item = ChannelKey> + 'a {
    let core = drive.core();
    core.ids().filter_map(|id| core.device_channel(id)).chain(open.iter().copied())
}
