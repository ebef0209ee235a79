//! The bare core.

use std::hint::black_box;

use cmid_proto::{AckToken, Acks, Call, ChannelKey, Core, Event, EventKind, IdKey, PortSpace, RawEvent, Request, Time};

use super::{LIMITS, Level};

/// The bare core: each step is one call of the contract.
#[derive(Debug)]
pub struct Bare {
    core: Core,
    now: Time,
    made: u64,
}

impl Bare {
    /// A request that has no short path on an id that is not synchronous.
    #[inline(never)]
    fn request_any(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        let made = &mut self.made;
        let make = |call: &Call, data: &[u8]| {
            black_box((call, data));
            *made += 1;
            Ok(())
        };
        match self.core.perform_sync(self.now, id, &request, deadline, make) {
            Some(result) => result.expect("success"),
            None => self.request_in_steps(id, request, deadline),
        }
    }

    /// Step 3 of the contract.
    #[inline(always)]
    fn calls(&mut self) {
        loop {
            // Used in place, without a move.
            let next = self.core.poll_call();
            let Some((token, call)) = &next else { return };
            black_box((call, self.core.call_data(*token)));
            self.made += 1;
            self.core.handle_outcome(*token, Ok(())).expect("the call is known");
        }
    }
}

impl Level for Bare {
    type Arriving = RawEvent<&'static [u8]>;

    const NAME: &'static str = "core";

    fn new() -> Self {
        Bare { core: Core::new(LIMITS), now: Time::ZERO, made: 0 }
    }

    fn core(&self) -> &Core {
        &self.core
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn open(&mut self) -> ChannelKey {
        let channel = self.core.open_channel(Acks::Explicit).expect("room");
        self.calls();
        channel
    }

    #[inline(always)]
    fn create(&mut self, on: ChannelKey) -> IdKey {
        let made = &mut self.made;
        let make = |call: &Call| {
            black_box(call);
            *made += 1;
            Ok(())
        };
        let id = self.core.perform_create(on, PortSpace::Tcp, make).expect("nothing in the way");
        id.expect("success")
    }

    fn create_sync(&mut self) -> IdKey {
        let id = self.core.create_id(None, PortSpace::Tcp).expect("room");
        self.calls();
        id
    }

    #[inline(always)]
    fn request(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        let made = &mut self.made;
        let make = |call: &Call, data: &[u8]| {
            black_box((call, data));
            *made += 1;
            Ok(())
        };
        match self.core.perform(self.now, id, &request, deadline, make) {
            Some(result) => {
                result.expect("success");
                if self.core.has_calls() {
                    self.calls();
                }
            }
            None => self.request_any(id, request, deadline),
        }
    }

    #[inline(always)]
    fn request_in_steps(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        self.core.submit(self.now, id, request, deadline).expect("a request in the right state");
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
        core.poll_call().is_some()
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
