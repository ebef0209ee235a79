//! A raw event in, the application's event out, and its ack.

use cmid_proto::{CmEvent, EventKind, IdKey, RawEvent, State};

use super::case::Case;
use super::life::{REPLY, connected, lead_to_connecting};
use crate::level::Level;
use crate::prepared::Prepared;

/// An event without a change of state: ADDR_CHANGE, for a connection with a network interface that fails over. With an
/// edge-triggered poller a read that finds no more events follows.
#[derive(Debug)]
pub struct OneEvent<const EDGE: bool> {
    ids: Vec<IdKey>,
    at: usize,
}

impl<L: Level, const EDGE: bool> Case<L> for OneEvent<EDGE> {
    type Input = L::Arriving;
    type Output = EventKind;

    fn new(prepared: &mut Prepared<L>) -> Self {
        prepared.level.set_edge_triggered(EDGE);
        OneEvent { ids: (0..4).map(|_| connected(prepared)).collect(), at: 0 }
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> L::Arriving {
        self.at = (self.at + 1) % self.ids.len();
        prepared.level.prepare_event(RawEvent::new(self.ids[self.at], CmEvent::AddrChange))
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, raw: L::Arriving) -> EventKind {
        let kind = prepared.level.deliver(prepared.channel, prepared.channel, raw);
        assert!(!EDGE || prepared.level.take(prepared.channel).is_none(), "one event was reported");
        kind
    }

    fn check(&mut self, prepared: &mut Prepared<L>, kind: EventKind) {
        assert_eq!(kind, EventKind::Cm(CmEvent::AddrChange));
        let id = self.ids[self.at];
        assert_eq!(
            (prepared.state(id), prepared.level.core().id_info(id).map_or(0, |it| it.owed)),
            (State::Connected, 0)
        );
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        prepared.level.set_edge_triggered(false);
        self.ids.into_iter().for_each(|id| prepared.renew(id));
    }
}

/// An event with private data (CONNECT_RESPONSE, 196 bytes) that changes the state and ends the deadline of a connect.
#[derive(Debug)]
pub struct Replied {
    id: Option<IdKey>,
}

impl<L: Level> Case<L> for Replied {
    type Input = L::Arriving;
    type Output = EventKind;

    fn new(_: &mut Prepared<L>) -> Self {
        Replied { id: None }
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> L::Arriving {
        let id = prepared.choose();
        self.id = Some(id);
        lead_to_connecting(prepared, id);
        let raw = RawEvent { private_data: &REPLY[..], ..RawEvent::new(id, CmEvent::ConnectResponse) };
        prepared.level.prepare_event(raw)
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, raw: L::Arriving) -> EventKind {
        prepared.level.deliver(prepared.channel, prepared.channel, raw)
    }

    fn check(&mut self, prepared: &mut Prepared<L>, kind: EventKind) {
        let id = self.id.take().expect("prepared");
        let owed = prepared.level.core().id_info(id).map_or(0, |it| it.owed);
        assert_eq!((kind, prepared.state(id), owed), (EventKind::Cm(CmEvent::ConnectResponse), State::Responded, 0));
        assert!(prepared.level.core().poll_timeout().is_none(), "no deadline is left");
        prepared.renew(id);
    }
}
