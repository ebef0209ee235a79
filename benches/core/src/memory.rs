//! Allocations and bytes, as counted by the allocator.

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::mem::size_of;
use std::net::SocketAddr;

use cmid_proto::memory::{Domain, Region as Registration};
use cmid_proto::{Acks, Begun, ChannelKey, CmEvent, Core, Flow, IdKey, Limits, PortSpace, RawEvent, Request, Time};
use stats_alloc::{Region, StatsAlloc};

use crate::cases::{self, Case};
use crate::for_each_case;
use crate::level::{Bare, Driven, Level};
use crate::prepared::Prepared;
use crate::requests::resolve;

/// The allocator of a program that measures.
pub type Allocator = StatsAlloc<System>;

/// Calls of the allocator in the steps of each case, by level and case.
pub type Allocations = BTreeMap<String, BTreeMap<String, usize>>;

/// The number of steps in which allocations are counted, and the number of other ids.
pub const STEPS: usize = 1000;
const IDS: usize = 1000;
/// The number of steps before. By then the heap of deadlines has been compacted more than once, and does not grow any
/// more.
const WARM_UP: usize = 4 * IDS;

fn of_case<L: Level, C: Case<L>>(allocator: &Allocator, prepared: &mut Prepared<L>) -> usize {
    let mut case = C::new(prepared);
    let mut count = 0;
    for step in 0..WARM_UP + STEPS {
        let input = case.prepare(prepared);
        let region = Region::new(allocator);
        let output = case.step(prepared, input);
        let change = region.change();
        case.check(prepared, output);
        if step >= WARM_UP {
            count += change.allocations + change.reallocations;
        }
    }
    case.leave(prepared);
    count
}

macro_rules! table {
    ($($name:literal = $case:ty),+; $($late:literal = $armed:ty),+ $(,)?) => {
        fn of_level<L: Level>(allocator: &Allocator) -> BTreeMap<String, usize> {
            use cases::*;
            let mut counts = BTreeMap::new();
            let mut prepared = Prepared::<L>::new(IDS);
            $(counts.insert($name.to_owned(), of_case::<L, $case>(allocator, &mut prepared));)+
            prepared.arm();
            $(counts.insert($late.to_owned(), of_case::<L, $armed>(allocator, &mut prepared));)+
            counts
        }
    };
}

for_each_case!(table);

/// Counts the allocations of [`STEPS`] steps of each case at both levels.
#[must_use]
pub fn allocations(allocator: &Allocator) -> Allocations {
    let levels = [(Bare::NAME, of_level::<Bare>(allocator)), (Driven::NAME, of_level::<Driven>(allocator))];
    levels.into_iter().map(|(level, counts)| (level.to_owned(), counts)).collect()
}

/// The number of objects of each kind when its bytes are measured.
pub const OBJECTS: usize = 1_000_000;

/// Bytes of one object, by name: the growth of the tables for [`OBJECTS`] objects.
pub type Bytes = BTreeMap<String, u64>;

/// Measures the bytes of each kind of object.
#[must_use]
pub fn bytes(allocator: &Allocator) -> Bytes {
    let grown = |name: &'static str, mut world: World, make: fn(&mut World, usize)| {
        let region = Region::new(allocator);
        (0..OBJECTS).for_each(|number| make(&mut world, number));
        let change = region.change();
        (name, (change.bytes_allocated - change.bytes_deallocated).div_ceil(OBJECTS) as u64)
    };
    let measured = [
        grown("id", World::new(0), |world, _| _ = world.create()),
        grown("deadline", World::new(OBJECTS), |world, id| world.request(id, resolve(), Time(7))),
        grown("channel", World::new(0), |world, _| _ = world.open()),
        grown("event", World::new(1), |world, _| world.deliver(&[])),
        grown("event_with_data", World::new(1), |world, _| world.deliver(&[1; 196])),
        grown("membership", World::with_device(), World::join),
        ("domain", size_of::<Domain>() as u64),
        ("region", size_of::<Registration<(), (), ()>>() as u64),
    ];
    measured.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

/// The bytes of an idle id with this many ids.
#[must_use]
pub fn bytes_per_id(allocator: &Allocator, ids: usize) -> u64 {
    let mut world = World::new(0);
    let region = Region::new(allocator);
    for _ in 0..ids {
        black_box(world.create());
    }
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated).div_ceil(ids) as u64
}

/// A core with datagram ids, as memberships need them. The list of them is made before the measurement.
struct World {
    core: Core,
    channel: ChannelKey,
    ids: Vec<IdKey>,
}

impl World {
    fn new(ids: usize) -> Self {
        let mut core = Core::new(Limits {
            ids: 1 << 21,
            channels: 1 << 21,
            events: 1 << 21,
            groups: 1 << 21,
            channel_events: 1 << 21,
            ..Limits::SINGLE
        });
        let (channel, begun) = core.open_channel(Acks::OnDelivery).expect("room");
        make(begun);
        let mut world = World { core, channel, ids: Vec::new() };
        world.ids = (0..ids).map(|_| world.create()).collect();
        world
    }

    fn with_device() -> Self {
        let mut world = World::new(OBJECTS);
        for at in 0..world.ids.len() {
            world.request(at, resolve(), Time::NEVER);
            let raw = RawEvent::new(world.ids[at], CmEvent::AddrResolved);
            world.core.handle_event(world.channel, raw).expect("a likely event");
            let _ = world.core.poll_event(world.channel).expect("an event");
        }
        world
    }

    fn create(&mut self) -> IdKey {
        let (id, begun) = self.core.create_id(Some(self.channel), PortSpace::Udp).expect("room");
        make(begun);
        id
    }

    fn open(&mut self) -> ChannelKey {
        let (channel, begun) = self.core.open_channel(Acks::Explicit).expect("room");
        make(begun);
        channel
    }

    fn request(&mut self, id: usize, request: Request<'_>, deadline: Time) {
        make(self.core.begin(Time::ZERO, self.ids[id], &request, deadline).expect("a request in the right state"));
    }

    /// Adds an event that stays undelivered.
    fn deliver(&mut self, private_data: &[u8]) {
        let raw = RawEvent { private_data, ..RawEvent::new(self.ids[0], CmEvent::AddrChange) };
        self.core.handle_event(self.channel, raw).expect("a likely event");
    }

    fn join(&mut self, id: usize) {
        let addr = SocketAddr::from(([239, 1, 1, 1], 7471));
        self.request(id, Request::Join { addr, send_only: false }, Time::NEVER);
    }
}

/// Makes the call of a request.
fn make(begun: Begun<'_, '_>) {
    assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))), "one call");
}
