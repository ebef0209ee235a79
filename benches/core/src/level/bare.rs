//! The bare core.

use std::hint::black_box;

use cmid_proto::{
    AckToken, Acks, Begun, ChannelKey, Core, Event, EventKind, Flow, IdKey, PortSpace, RawEvent, Request, Time,
};

use super::{LIMITS, Level};

/// The bare core: each step is one call of the contract.
#[derive(Debug)]
pub struct Bare {
    core: Core,
    now: Time,
    made: u64,
}

/// Steps 2 and 3 of the contract: makes the calls of a request.
#[inline(always)]
fn make(begun: Begun<'_, '_>, made: &mut u64) {
    match call(begun, made) {
        Flow::Done(result) => assert!(result.is_ok(), "success"),
        Flow::Next(next) => make_others(next, made),
    }
}

#[inline(never)]
fn make_others(mut begun: Begun<'_, '_>, made: &mut u64) {
    while let Flow::Next(next) = call(begun, made) {
        begun = next;
    }
}

#[inline(always)]
fn call<'c, 'r>(begun: Begun<'c, 'r>, made: &mut u64) -> Flow<'c, 'r> {
    let call = begun.call();
    if let Some(call) = &call {
        black_box((call, begun.private_data()));
        *made += 1;
    }
    begun.end(Ok(()))
}

impl Bare {
    /// Step 3 of the contract, for calls that follow from earlier steps.
    #[inline(always)]
    fn calls(&mut self) {
        while let Some(begun) = self.core.next() {
            make(begun, &mut self.made);
        }
    }
}

impl Level for Bare {
    type Arriving = RawEvent<&'static [u8]>;

    const NAME: &'static str = "core";
    const READS_AHEAD: bool = true;

    fn new() -> Self {
        Bare { core: Core::new(LIMITS), now: Time::ZERO, made: 0 }
    }

    fn set_edge_triggered(&mut self, _: bool) {}

    fn core(&self) -> &Core {
        &self.core
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn open(&mut self) -> ChannelKey {
        let (channel, begun) = self.core.open_channel(Acks::Explicit).expect("room");
        make(begun, &mut self.made);
        channel
    }

    #[inline(always)]
    fn create(&mut self, on: ChannelKey) -> IdKey {
        let (id, begun) = self.core.create_id(Some(on), PortSpace::Tcp).expect("room");
        make(begun, &mut self.made);
        id
    }

    #[inline(always)]
    fn request(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        let begun = self.core.begin(self.now, id, &request, deadline).expect("a request in the right state");
        make(begun, &mut self.made);
        self.calls();
    }

    #[inline(always)]
    fn migrate(&mut self, id: IdKey, to: ChannelKey) {
        self.request(id, Request::Migrate { to: Some(to) }, Time::NEVER);
        while let Some(channel) = self.core.poll_readable() {
            black_box(self.core.wants_event(channel)).expect("room");
        }
    }

    fn prepare_event(&mut self, raw: RawEvent<&'static [u8]>) -> RawEvent<&'static [u8]> {
        raw
    }

    #[inline(always)]
    fn receive(&mut self, device_channel: ChannelKey, raw: RawEvent<&'static [u8]>) {
        self.core.handle_event(device_channel, raw).expect("a likely event");
    }

    #[inline(always)]
    fn run_turns(&mut self) {
        self.calls();
    }

    #[inline(always)]
    fn take(&mut self, channel: ChannelKey) -> Option<Event> {
        self.core.poll_event(channel)
    }

    #[inline(always)]
    fn deliver(&mut self, device_channel: ChannelKey, channel: ChannelKey, raw: RawEvent<&'static [u8]>) -> EventKind {
        // Used in place, without a move.
        let mut taken = self.core.take_event(device_channel, &raw, channel);
        let event = black_box(&mut taken).1.as_mut().expect("an event");
        self.core.ack(event.ack_token.take().expect("an ack token")).expect("an ack is owed");
        event.kind
    }

    fn ack(&mut self, ack_token: AckToken) {
        self.core.ack(ack_token).expect("an ack is owed");
    }

    #[inline(always)]
    fn take_and_ack(&mut self, channel: ChannelKey) -> EventKind {
        // Used in place, without a move.
        let mut event = self.core.poll_event(channel);
        let event = black_box(&mut event).as_mut().expect("an event");
        self.core.ack(event.ack_token.take().expect("an ack token")).expect("an ack is owed");
        event.kind
    }

    #[inline(always)]
    fn look(&mut self, on: ChannelKey) -> bool {
        // One after the other, as in a driver's loop. All are polled if all are empty.
        let core = &mut self.core;
        core.next().is_some()
            || core.poll_readable().is_some()
            || core.poll_event(on).is_some()
            || core.poll_timeout().is_some()
    }

    fn now(&self) -> Time {
        self.now
    }

    #[inline(always)]
    fn pass(&mut self, now: Time) {
        self.now = now;
        self.core.handle_timeout(now);
    }
}
