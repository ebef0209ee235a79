//! An id moves to another channel with its undelivered events.

use cmid_proto::{ChannelKey, CmEvent, EventKind, IdKey, RawEvent};

use super::Case;
use crate::level::Level;
use crate::stage::Stage;

/// A connected id with so many events; its events and those of others are mixed, or each id's come one after the other.
#[derive(Debug)]
pub struct Migrate<const EVENTS: usize, const MIXED: bool> {
    traveller: IdKey,
    /// Whose events stay behind, before and after.
    others: [IdKey; 2],
    to: ChannelKey,
}

impl<const EVENTS: usize, const MIXED: bool> Migrate<EVENTS, MIXED> {
    fn send<L: Level>(stage: &mut Stage<L>, ids: [IdKey; 3]) {
        let mut sent: Vec<_> =
            ids.into_iter().flat_map(|id| (0..EVENTS as i32).map(move |status| (status, id))).collect();
        if MIXED {
            sent.sort_by_key(|&(status, _)| status);
        }
        for (status, id) in sent {
            let raw = stage.level.arrive(RawEvent { status, ..RawEvent::new(id, CmEvent::AddrChange) });
            stage.level.hear(stage.channel, raw);
        }
    }

    /// All of these, each id's in order, and no others.
    fn take<L: Level>(stage: &mut Stage<L>, on: ChannelKey, of: &[IdKey]) {
        let mut taken = vec![0; of.len()];
        while let Some(event) = stage.level.take(on) {
            let at = of.iter().position(|&id| id == event.id).expect("one of these");
            assert_eq!((event.kind, event.status), (EventKind::Cm(CmEvent::AddrChange), taken[at]));
            taken[at] += 1;
            stage.level.ack(event.receipt.expect("a receipt"));
        }
        assert!(taken.iter().all(|&taken| taken == EVENTS as i32), "all events");
    }
}

impl<L: Level, const EVENTS: usize, const MIXED: bool> Case<L> for Migrate<EVENTS, MIXED> {
    type Input = ();
    type Output = ();

    fn new(stage: &mut Stage<L>) -> Self {
        let others = [stage.connected(), stage.connected()];
        Migrate { traveller: stage.connected(), others, to: stage.level.open() }
    }

    fn prepare(&mut self, stage: &mut Stage<L>) {
        Self::send(stage, [self.others[0], self.traveller, self.others[1]]);
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, (): ()) {
        stage.level.migrate(self.traveller, self.to);
    }

    fn check(&mut self, stage: &mut Stage<L>, (): ()) {
        assert_eq!(stage.level.core().home(self.traveller), Some(self.to));
        Self::take(stage, self.to, &[self.traveller]);
        Self::take(stage, stage.channel, &self.others);
        stage.level.migrate(self.traveller, stage.channel);
    }

    fn leave(self, stage: &mut Stage<L>) {
        for id in [self.others[0], self.traveller, self.others[1]] {
            stage.renew(id);
        }
    }
}
