//! Two [`Messages`] over a reliable connection on which packets take their time, or one with a hostile peer.
//!
//! Each program counts the receives that it has posted: a packet that is sent takes one, so none meets a missing one. It
//! holds messages back as long as the input says. At the end all messages arrive, both sides say goodbye, and neither
//! waits for the other. A hostile peer replaces bytes of its packets: what arrives is a message, or an error that stays.

use std::collections::VecDeque;
use std::time::Duration;

use cmid_proto::Time;
use cmid_proto::datapath::Remote;
use cmid_proto::messages::{
    HEADER, Messages, MessagesConfig, MessagesError, NotSent, OFFER, Received, Stage, WINDOW_MIN,
};

use crate::input::Input;
use crate::say::say;

/// Everything must be at rest after so many turns.
const ENOUGH: usize = 100;

/// Above the windows of both sides.
const WINDOW_MAX: u16 = WINDOW_MIN + 8;

const KEEP_ALIVE: Duration = Duration::from_millis(100);

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    while !input.is_over() && !world.is_broken {
        world.step(&mut input);
    }
    if !world.is_broken {
        world.rest();
    }
}

struct Side {
    messages: Messages,
    /// Posted receives that no packet has been sent to.
    posted: u32,
    /// Messages whose receives are not posted.
    held: u32,
    /// Packets on their way to this side.
    arriving: VecDeque<Vec<u8>>,
    /// Offered messages that are not taken, of those of the peer.
    untaken: u32,
    /// The numbers of the next messages to send and to receive; their bytes are the number, or the place of an offer.
    next: u8,
    expected: u8,
}

struct World {
    sides: [Side; 2],
    now: Time,
    is_hostile: bool,
    /// Packets may be under way for longer than a side is silent: silence is not judged.
    is_slow: bool,
    /// A hostile packet was noticed.
    is_broken: bool,
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let is_hostile = input.once_in(3);
        let is_slow = input.once_in(2);
        let configs = [0, 1].map(|_| MessagesConfig {
            window: WINDOW_MIN + input.below(usize::from(WINDOW_MAX - WINDOW_MIN)) as u16,
            packet: if input.once_in(2) { OFFER + 1 } else { HEADER + 1 + input.below(4) } as u32,
            keep_alive: KEEP_ALIVE,
            silence: if is_slow { KEEP_ALIVE * 10_000 } else { KEEP_ALIVE * 4 },
        });
        say(|| format!("{configs:?}, hostile: {is_hostile}"));
        let sides = [0, 1].map(|at| {
            let hello = configs[1 - at].hello();
            let messages = Messages::new(configs[at], &hello, Time::ZERO).expect("both fit");
            let posted = configs[at].window.into();
            Side { messages, posted, held: 0, arriving: VecDeque::new(), untaken: 0, next: 0, expected: 0 }
        });
        World { sides, now: Time::ZERO, is_hostile, is_slow, is_broken: false }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = input.below(2);
        match input.below(8) {
            0 => self.send(at, input.below(4)),
            1 if input.once_in(2) => self.offer(at),
            1 => self.send(at, input.below(4)),
            2..=4 => self.arrive(at, input),
            5 => self.post(at, 1 + input.below(3) as u32),
            6 => self.control(at),
            _ => match input.below(16) {
                0..=5 => self.pass(at, false),
                6..=9 => self.quiet(),
                10..=14 if self.is_slow => {
                    self.now = self.now.after(KEEP_ALIVE);
                    self.control(at);
                    if input.once_in(2) {
                        self.control(1 - at);
                    }
                }
                10..=14 => self.pass(at, input.once_in(2)),
                _ => self.sides[at].messages.close(Time::NEVER),
            },
        }
    }

    /// The rounds until both sides have said what they have to say: each answer to an offer may wait for a credit. A side may
    /// have more offers than receives, because a receive is posted again before its offer is answered.
    fn rounds(&self) -> u32 {
        6 + 2 * self.sides.iter().map(|side| side.messages.offered()).sum::<u32>()
    }

    /// Without time and messages it comes to rest: packets without messages answer each other ever less.
    fn quiet(&mut self) {
        let rounds = self.rounds();
        for round in 0.. {
            assert!(round < rounds, "packets without messages answer each other for ever");
            for at in [0, 1] {
                self.control(at);
            }
            if self.is_broken || self.sides.iter().all(|side| side.arriving.is_empty()) {
                return;
            }
            for at in [0, 1] {
                self.arrive_all(at);
            }
        }
    }

    /// Time passes, and what is due is sent and arrives: packets cross, or the second side has those of the first one.
    fn pass(&mut self, first: usize, is_in_turn: bool) {
        self.now = self.now.after(KEEP_ALIVE);
        self.control(first);
        if is_in_turn {
            self.arrive_all(1 - first);
        }
        self.control(1 - first);
        for at in [0, 1] {
            self.arrive_all(at);
        }
        if !self.is_broken {
            for side in &mut self.sides {
                assert_eq!(side.messages.handle_timeout(self.now), Ok(()), "a peer that lives is not dead");
            }
        }
    }

    fn post(&mut self, at: usize, count: u32) {
        let side = &mut self.sides[at];
        let count = count.min(side.held);
        // Those of offers are held back until they are taken, so that the peer has no more offers than credits.
        for _ in 0..side.untaken.min(count) {
            side.untaken -= 1;
            side.messages.take();
        }
        side.held -= count;
        side.posted += count;
        side.messages.posted(count);
    }

    fn send(&mut self, at: usize, len: usize) {
        let side = &mut self.sides[at];
        let credits = side.messages.credits();
        match side.messages.send(len, self.now) {
            Ok(header) => {
                let message = vec![side.next; len];
                side.next = side.next.wrapping_add(1);
                self.packet(at, [&header[..], &message].concat());
            }
            Err(NotSent::NoCredit) => assert_eq!(credits, 0),
            Err(NotSent::TooLong { max, .. }) => assert!(len > max),
            Err(_) => {}
        }
    }

    fn offer(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let place = Remote { addr: side.next.into(), rkey: 7 };
        if let Ok(packet) = side.messages.offer(1 << 33, place, self.now) {
            side.next = side.next.wrapping_add(1);
            self.packet(at, packet.to_vec());
        }
    }

    fn control(&mut self, at: usize) {
        while let Some(header) = self.sides[at].messages.poll_control(self.now) {
            self.packet(at, header.to_vec());
        }
    }

    /// A packet is posted: it takes a receive of the peer.
    fn packet(&mut self, from: usize, packet: Vec<u8>) {
        say(|| format!("{from} sends {packet:?}"));
        let to = &mut self.sides[1 - from];
        assert!(to.posted > 0, "no receive is posted for a packet of {from}");
        to.posted -= 1;
        to.arriving.push_back(packet);
    }

    fn arrive_all(&mut self, at: usize) {
        while !self.is_broken && !self.sides[at].arriving.is_empty() {
            self.arrive(at, &mut Input::new(&[]));
        }
    }

    fn arrive(&mut self, at: usize, input: &mut Input<'_>) {
        let side = &mut self.sides[at];
        let Some(mut packet) = side.arriving.pop_front() else { return };
        if self.is_hostile && input.once_in(4) {
            packet = hostile(packet, input);
            self.is_broken = true;
        }
        match side.messages.receive(&packet, self.now) {
            Ok(Received::Message(message)) => {
                side.held += 1;
                if !self.is_broken {
                    assert!(message.iter().all(|&byte| byte == side.expected), "a message is another one");
                    side.expected = side.expected.wrapping_add(1);
                }
            }
            Ok(Received::Offer { at: place, len }) => {
                side.held += 1;
                side.untaken += 1;
                if !self.is_broken {
                    assert_eq!((place.addr, place.rkey, len), (side.expected.into(), 7, 1 << 33));
                    side.expected = side.expected.wrapping_add(1);
                }
            }
            Ok(Received::Control | Received::Goodbye | Received::Taken) => side.posted += 1,
            Err(error) => {
                assert!(self.is_broken, "{error}");
                say(|| error.to_string());
                stays(&mut side.messages, error, self.now);
            }
        }
    }

    /// All is let go: neither waits for the other, and both close.
    fn rest(mut self) {
        for _ in 0..self.rounds() {
            for at in [0, 1] {
                self.post(at, u32::MAX);
            }
            self.pass(0, false);
        }
        for at in [0, 1] {
            self.arrive_all(at);
            let side = &self.sides[at].messages;
            let waits = side.stage() == Stage::Open && side.credits() == 0;
            assert!(!waits, "{at} has no credit, and the other side holds nothing");
        }
        self.sides.iter_mut().for_each(|side| side.messages.close(Time::NEVER));
        for turn in 0.. {
            assert!(turn < ENOUGH, "one waits for the other");
            if self.sides.iter().all(|side| side.messages.is_over()) {
                break;
            }
            for at in [0, 1] {
                self.post(at, u32::MAX);
            }
            self.pass(0, false);
        }
        for at in [0, 1] {
            self.arrive_all(at);
            assert_eq!(self.sides[at].expected, self.sides[1 - at].next, "messages are lost");
            assert_eq!(self.sides[at].messages.offered(), 0, "an offer is not taken");
        }
    }
}

/// The packet of a hostile peer: any bytes, or one that is changed, cut or longer.
fn hostile(mut packet: Vec<u8>, input: &mut Input<'_>) -> Vec<u8> {
    match input.below(4) {
        0 => {
            let at = input.below(packet.len());
            packet[at] = input.any();
        }
        1 => packet.truncate(input.below(packet.len())),
        2 => packet.extend([0; 3]),
        _ => packet = (0..input.below(40)).map(|_| input.any()).collect(),
    }
    packet
}

/// The error is that of each later call, and nothing is sent any more.
fn stays(messages: &mut Messages, error: MessagesError, now: Time) {
    assert_eq!(messages.receive(&[], now), Err(error));
    assert_eq!(messages.handle_timeout(now), Err(error));
    assert_eq!((messages.poll_control(now), messages.timeout()), (None, None));
    assert_eq!(messages.send(0, now), Err(NotSent::Closed));
}
