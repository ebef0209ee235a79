//! All states of two accounts with small windows: whatever the programs do, and however long packets take.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::*;

/// A packet under way, its number, and what it permits.
type Packet = (Kind, u32, u32);

/// Its receive is that of a message, or it answers an offer, or neither.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Answer,
    Control,
}

#[derive(Clone)]
struct World {
    sides: [Credits; 2],
    /// The packets on their way to each side.
    arriving: [VecDeque<Packet>; 2],
}

/// A step of the side with this number.
type Step = fn(&mut World, usize);

/// All that the behaviour depends on: the numbers only differ.
type Key = Vec<u32>;

impl World {
    fn new(windows: [u16; 2]) -> Self {
        let sides = [Credits::new(windows[0], windows[1]), Credits::new(windows[1], windows[0])];
        World { sides, arriving: [VecDeque::new(), VecDeque::new()] }
    }

    fn key(&self) -> Key {
        let mut key = Vec::new();
        for (side, arriving) in self.sides.iter().zip(&self.arriving) {
            key.extend([side.credits, side.at_peer, side.free, side.has_news.into(), side.held, arriving.len() as u32]);
            for (kind, _, granted) in arriving {
                key.extend([*kind as u32, granted.wrapping_sub(side.peer_granted)]);
            }
        }
        key
    }

    /// A side sends a packet: it meets a receive that is posted.
    fn send(&mut self, from: usize, kind: Kind) {
        let to = &self.sides[1 - from];
        let under_way = self.arriving[1 - from].len() as u32;
        assert!(u32::from(to.own_window) > to.held + under_way, "no receive is posted: {:?}", self.key());
        let (number, granted) = self.sides[from].send();
        self.arriving[1 - from].push_back((kind, number, granted));
    }

    fn arrive(&mut self, at: usize) -> bool {
        let Some((kind, number, granted)) = self.arriving[at].pop_front() else { return false };
        let side = &mut self.sides[at];
        assert_eq!(side.receive(number, granted), Ok(()));
        match kind {
            Kind::Message => side.hold(),
            Kind::Answer | Kind::Control => side.control_posted(kind == Kind::Answer),
        }
        true
    }

    /// The states after each possible step of a side. Signs of life may be due at any time.
    fn after(&self, at: usize) -> impl Iterator<Item = World> + '_ {
        let side = &self.sides[at];
        let steps: [(bool, Step); 5] = [
            (side.for_messages() > 0, |world, at| world.send(at, Kind::Message)),
            (side.for_control(), |world, at| world.send(at, Kind::Answer)),
            (side.for_control(), |world, at| world.send(at, Kind::Control)),
            (!self.arriving[at].is_empty(), |world, at| _ = world.arrive(at)),
            (side.held > 0, |world, at| world.sides[at].posted(1)),
        ];
        steps.into_iter().filter(|(is_possible, _)| *is_possible).map(move |(_, step)| {
            let mut next = self.clone();
            step(&mut next, at);
            next
        })
    }

    /// Nobody sends a message or a sign of life: what the sides answer each other ends.
    fn falls_silent(mut self) {
        for _ in 0..8 {
            for at in [0, 1] {
                while self.arrive(at) {}
            }
            let awaited = [0, 1].map(|at| self.sides[at].is_awaited() && self.sides[at].for_control());
            if awaited == [false, false] {
                return;
            }
            for at in [0, 1].into_iter().filter(|&at| awaited[at]) {
                self.send(at, Kind::Control);
            }
        }
        panic!("control packets answer each other for ever: {:?}", self.key());
    }

    /// The programs let all receives go, and signs of life cross three times: both can send messages then.
    fn comes_to_rest(mut self) {
        for _ in 0..3 {
            for at in [0, 1] {
                while self.arrive(at) {}
                self.sides[at].posted(u32::MAX);
            }
            for at in [0, 1] {
                if self.sides[at].for_control() {
                    self.send(at, Kind::Control);
                }
            }
        }
        for at in [0, 1] {
            while self.arrive(at) {}
            assert!(self.sides[at].for_messages() > 0, "{at} waits for ever: {:?}", self.key());
        }
    }
}

#[test]
fn in_no_state_is_a_receive_missing_or_does_a_side_wait_or_answer_for_ever() {
    for (windows, least) in [([4, 4], 7_000), ([4, 5], 15_000)] {
        let (mut seen, mut open) = (BTreeSet::new(), Vec::from([World::new(windows)]));
        while let Some(world) = open.pop() {
            if seen.insert(world.key()) {
                open.extend([0, 1].into_iter().flat_map(|at| world.after(at)));
                world.clone().falls_silent();
                world.comes_to_rest();
            }
        }
        assert!(seen.len() > least, "{} states of {windows:?}", seen.len());
    }
}

#[test]
fn the_numbers_go_around() {
    // 16 packets before the end of the numbers.
    let mut sides = [(); 2].map(|()| {
        let start = u32::MAX - 16;
        let mut side = Credits::new(8, 8);
        (side.sent, side.received) = (start, start);
        (side.granted, side.peer_granted) = (start.wrapping_add(8), start.wrapping_add(8));
        side
    });
    for _ in 0..100 {
        for from in 0..2 {
            let (number, granted) = sides[from].send();
            let to = &mut sides[1 - from];
            assert_eq!(to.receive(number, granted), Ok(()));
            to.hold();
            to.posted(1);
        }
        assert!(sides.iter().all(|side| side.credits >= 7));
    }
    assert_eq!(sides[0].sent, 83);
}

#[test]
fn a_receive_that_the_peer_waits_for_is_news() {
    for (window, second) in [(4, true), (4, false), (8, true), (8, false)] {
        let mut credits = Credits::new(window, window);
        credits.posted(0);
        credits.control_posted(false);
        assert!(!credits.has_news);
        // It answers an offer, or is the second one.
        credits.control_posted(second);
        assert!(credits.has_news);
    }
    let mut credits = Credits::new(8, 8);
    credits.control_posted(true);
    assert!(credits.has_news);
}
