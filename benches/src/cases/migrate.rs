//! An id moves to another channel with its undelivered events.

use cmid_proto::{ChannelKey, CmEvent, EventKind, IdKey, RawEvent};

use super::Case;
use crate::level::Level;
use crate::stage::Stage;

/// A connected id with so many events.
#[derive(Debug)]
pub struct Migrate<const EVENTS: usize> {
    traveller: IdKey,
    /// Whose events stay behind, before and after.
    others: [IdKey; 2],
    to: ChannelKey,
}

impl<const EVENTS: usize> Migrate<EVENTS> {
    fn send<L: Level>(stage: &mut Stage<L>, id: IdKey) {
        for status in 0..EVENTS as i32 {
            let raw = stage.level.arrive(RawEvent { status, ..RawEvent::new(id, CmEvent::AddrChange) });
            stage.level.hear(stage.channel, raw);
        }
    }

    /// All of these, in order, and no others.
    fn take<L: Level>(stage: &mut Stage<L>, on: ChannelKey, of: IdKey) {
        for status in 0..EVENTS as i32 {
            let event = stage.level.take(on).expect("an event");
            assert_eq!((event.id, event.kind, event.status), (of, EventKind::Cm(CmEvent::AddrChange), status));
            stage.level.ack(event.receipt.expect("a receipt"));
        }
    }
}

impl<L: Level, const EVENTS: usize> Case<L> for Migrate<EVENTS> {
    type Input = ();
    type Output = ();

    fn new(stage: &mut Stage<L>) -> Self {
        let others = [stage.connected(), stage.connected()];
        Migrate { traveller: stage.connected(), others, to: stage.level.open() }
    }

    fn prepare(&mut self, stage: &mut Stage<L>) {
        for id in [self.others[0], self.traveller, self.others[1]] {
            Self::send(stage, id);
        }
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, (): ()) {
        stage.level.migrate(self.traveller, self.to);
    }

    fn check(&mut self, stage: &mut Stage<L>, (): ()) {
        assert_eq!(stage.level.core().home(self.traveller), Some(self.to));
        Self::take(stage, self.to, self.traveller);
        for id in self.others {
            Self::take(stage, stage.channel, id);
        }
        assert!(stage.level.take(self.to).is_none(), "no other events moved");
        stage.level.migrate(self.traveller, stage.channel);
    }

    fn leave(self, stage: &mut Stage<L>) {
        for id in [self.others[0], self.traveller, self.others[1]] {
            stage.renew(id);
        }
    }
}
