//! Complete lives of connections, from create to destroy, with a deadline on every operation that takes time.

use std::hint::black_box;

use cmid_proto::{ChannelKey, CmEvent, IdKey, RawEvent, Request, Time};

use super::case::Case;
use crate::level::Level;
use crate::prepared::Prepared;
use crate::requests::{PARAM, REQUEST, connect, resolve};

/// A deadline that is not reached.
pub(super) const LATER: Time = Time(5_000_000_000);

/// The private data field of a REP: the maximum of an event.
pub(super) static REPLY: [u8; 196] = [0x5a; 196];

/// Takes an idle id to a resolved route.
#[inline]
pub(super) fn lead_to_route<L: Level>(prepared: &mut Prepared<L>, id: IdKey) {
    prepared.level.request(id, resolve(), LATER);
    prepared.deliver(id, CmEvent::AddrResolved);
    prepared.level.request(id, Request::ResolveRoute, LATER);
    prepared.deliver(id, CmEvent::RouteResolved);
}

/// Takes an idle id to a sent request.
#[inline]
pub(super) fn lead_to_connecting<L: Level>(prepared: &mut Prepared<L>, id: IdKey) {
    lead_to_route(prepared, id);
    prepared.level.request(id, connect(), LATER);
}

/// Takes an idle id to a connection.
#[inline]
pub(super) fn lead_to_connected<L: Level>(prepared: &mut Prepared<L>, id: IdKey) {
    lead_to_connecting(prepared, id);
    let raw = RawEvent { private_data: &REPLY[..], ..RawEvent::new(id, CmEvent::ConnectResponse) };
    let raw = prepared.level.prepare_event(raw);
    prepared.level.deliver(prepared.channel, prepared.channel, raw);
    prepared.level.request(id, Request::Establish, LATER);
}

/// The next id, connected as the active side.
pub(super) fn connected<L: Level>(prepared: &mut Prepared<L>) -> IdKey {
    let id = prepared.choose();
    lead_to_connected(prepared, id);
    id
}

/// Closes a connection from this side, and destroys its id.
#[inline]
fn part<L: Level>(prepared: &mut Prepared<L>, id: IdKey) {
    prepared.level.request(id, Request::Disconnect, LATER);
    prepared.deliver(id, CmEvent::Disconnected);
    prepared.deliver(id, CmEvent::TimewaitExit);
    prepared.level.request(id, Request::Destroy, LATER);
}

/// The active side: create, 6 requests and 5 events, private data both ways.
#[derive(Debug)]
pub struct Active;

impl<L: Level> Case<L> for Active {
    type Input = ();
    type Output = IdKey;

    fn new(_: &mut Prepared<L>) -> Self {
        Active
    }

    fn prepare(&mut self, _: &mut Prepared<L>) {}

    #[inline]
    fn step(&mut self, prepared: &mut Prepared<L>, (): ()) -> IdKey {
        let id = prepared.level.create(prepared.channel);
        lead_to_connected(prepared, id);
        part(prepared, id);
        id
    }

    fn check(&mut self, prepared: &mut Prepared<L>, id: IdKey) {
        let core = prepared.level.core();
        assert_eq!((core.state(id), core.poll_timeout()), (None, None));
    }
}

/// The passive side: a request arrives, its id migrates off the listener's channel and accepts; 3 requests and 4
/// events.
#[derive(Debug)]
pub struct Passive {
    listener: IdKey,
    device_channel: ChannelKey,
}

impl<L: Level> Case<L> for Passive {
    type Input = IdKey;
    type Output = IdKey;

    fn new(prepared: &mut Prepared<L>) -> Self {
        let listener = prepared.choose();
        prepared.level.request(listener, Request::Listen { backlog: 64 }, Time::NEVER);
        let core = prepared.level.core();
        Passive { listener, device_channel: core.device_channel(listener).expect("it lives") }
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> IdKey {
        prepared.level.core().wants_event(self.device_channel).expect("room")
    }

    #[inline]
    fn step(&mut self, prepared: &mut Prepared<L>, child: IdKey) -> IdKey {
        let raw = RawEvent::new(child, CmEvent::ConnectRequest);
        let raw =
            prepared.level.prepare_event(RawEvent { listener: Some(self.listener), private_data: &REQUEST[..], ..raw });
        prepared.level.receive(self.device_channel, raw);
        prepared.level.run_turns();
        prepared.level.take_and_ack(prepared.channel);
        prepared.level.request(child, Request::Accept { param: black_box(PARAM), private_data: &REPLY }, LATER);
        prepared.deliver(child, CmEvent::Established);
        part(prepared, child);
        child
    }

    fn check(&mut self, prepared: &mut Prepared<L>, child: IdKey) {
        // Discards the channel work that the listen has left.
        prepared.level.look(prepared.channel);
        let core = prepared.level.core();
        assert_eq!((core.state(child), core.poll_timeout()), (None, None));
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        prepared.renew(self.listener);
    }
}
