//! An id migrates to another channel with its undelivered events.

use cmid_proto::{ChannelKey, CmEvent, EventKind, IdKey, RawEvent};

use super::case::Case;
use super::life::connected;
use crate::level::Level;
use crate::prepared::Prepared;

/// A connected id with this many events. Two others have as many each.
#[derive(Debug)]
pub struct Migrate<const EVENTS: usize> {
    traveller: IdKey,
    /// Ids with events that stay behind, before and after.
    others: [IdKey; 2],
    to: ChannelKey,
}

impl<const EVENTS: usize> Migrate<EVENTS> {
    fn send<L: Level>(prepared: &mut Prepared<L>, ids: [IdKey; 3]) {
        let sent = ids
            .into_iter()
            .filter(|_| L::READS_AHEAD)
            .flat_map(|id| (0..EVENTS as i32).map(move |status| (status, id)));
        for (status, id) in sent {
            let raw = prepared.level.prepare_event(RawEvent { status, ..RawEvent::new(id, CmEvent::AddrChange) });
            prepared.level.receive(prepared.channel, raw);
        }
    }

    /// Takes the events of these ids, each id's in order, and no others.
    fn take<L: Level>(prepared: &mut Prepared<L>, on: ChannelKey, of: &[IdKey]) {
        let mut taken = vec![0; of.len()];
        while let Some(event) = prepared.level.take(on) {
            let at = of.iter().position(|&id| id == event.id).expect("one of these");
            assert_eq!((event.kind, event.status), (EventKind::Cm(CmEvent::AddrChange), taken[at]));
            taken[at] += 1;
            prepared.level.ack(event.ack_token.expect("an ack token"));
        }
        let expected = if L::READS_AHEAD { EVENTS as i32 } else { 0 };
        assert!(taken.iter().all(|&taken| taken == expected), "all events");
    }
}

impl<L: Level, const EVENTS: usize> Case<L> for Migrate<EVENTS> {
    type Input = ();
    type Output = ();

    fn new(prepared: &mut Prepared<L>) -> Self {
        let others = [connected(prepared), connected(prepared)];
        Migrate { traveller: connected(prepared), others, to: prepared.level.open() }
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) {
        Self::send(prepared, [self.others[0], self.traveller, self.others[1]]);
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, (): ()) {
        prepared.level.migrate(self.traveller, self.to);
    }

    fn check(&mut self, prepared: &mut Prepared<L>, (): ()) {
        assert_eq!(prepared.level.core().channel(self.traveller), Some(self.to));
        Self::take(prepared, self.to, &[self.traveller]);
        Self::take(prepared, prepared.channel, &self.others);
        prepared.level.migrate(self.traveller, prepared.channel);
    }

    fn leave(self, prepared: &mut Prepared<L>) {
        for id in [self.others[0], self.traveller, self.others[1]] {
            prepared.renew(id);
        }
    }
}
