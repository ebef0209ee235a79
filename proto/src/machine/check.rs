//! The invariants, for tests, fuzzers and model checkers.

use super::Core;
use crate::id::{Doing, Phase, Waiting};
use crate::state::State;
use crate::table;
use crate::time::Time;

impl Core {
    /// Panics if an invariant does not hold. For tests; no other function panics.
    ///
    /// # Panics
    /// With what is wrong.
    #[allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a check that cannot fail would be none")]
    pub fn check(&self) {
        let mut ended = 0;
        let mut owned = 0;
        for (key, id) in self.ids.iter() {
            let home = self.channels.get(id.home).unwrap_or_else(|| panic!("{key} is on no channel"));
            assert!(!id.sync || home.private, "{key} is synchronous on a shared channel");
            assert_eq!(
                id.call.is_some(),
                !matches!(id.doing, Doing::Nothing | Doing::Quiesce { .. }),
                "{key}: its call"
            );
            assert!(
                id.owed == 0 || !matches!(id.doing, Doing::Move { .. } | Doing::Destroy),
                "{key} is moved or destroyed while acks are owed"
            );
            assert!(
                id.deadline == Time::NEVER || table::operation(id.state).is_some(),
                "{key} has a deadline for nothing while {}",
                id.state
            );
            assert_eq!(id.due() == Time::NEVER, id.alarm.is_none(), "{key}: its alarm");
            if let Waiting::Ended(..) = id.waiting {
                ended += 1;
            }
            if let Waiting::For(verb) = id.waiting {
                assert_eq!(table::operation(id.state), Some(verb), "{key} waits for what is not under way");
            }
            assert!(id.state != State::Destroying || id.mail.len == 0, "{key} is destroyed and has undelivered events");
            let mut at = id.mail.head();
            let mut count = 0;
            while let Some(letter) = at {
                assert_eq!(self.mail.get(letter).owner(), key, "an event on a foreign list");
                count += 1;
                at = self.mail.next_owned(letter);
            }
            assert_eq!(count, id.mail.len, "{key}: its undelivered events");
            owned += count;
        }
        let mut delivered = 0;
        let mut on_channels = 0;
        for (key, channel) in self.channels.iter() {
            let ids = self.ids.iter().filter(|(_, id)| id.home == key).count() as u32;
            let coming = self
                .ids
                .iter()
                .filter(|(_, id)| match id.doing {
                    Doing::OpenToMove { to, .. } | Doing::Move { to, .. } => to == key && id.home != key,
                    Doing::Nothing
                    | Doing::OpenToCreate
                    | Doing::Create
                    | Doing::Request { .. }
                    | Doing::Quiesce { .. }
                    | Doing::Destroy => false,
                })
                .count() as u32;
            assert_eq!(channel.ids, ids + coming, "{key}: the ids on it");
            assert!(!channel.private || channel.ids > 0 || channel.phase == Phase::Closing, "{key} is nobody's");
            let letters = self.mail.letters(&channel.mail).count() as u32;
            assert_eq!(letters, channel.mail.len, "{key}: its undelivered events");
            on_channels += letters;
            delivered += self
                .mail
                .letters(&channel.mail)
                .filter(|&letter| self.ids.contains(self.mail.get(letter).owner()))
                .count() as u32;
        }
        assert_eq!(owned, delivered, "events on the ids' lists and on the channels'");
        assert_eq!((on_channels + ended) as usize, self.mail.nodes_len(), "events stored and on lists");
        assert_eq!(self.alarms.len(), self.ids.iter().filter(|(_, id)| id.alarm.is_some()).count(), "alarms");
        if self.ids.len() == 0 && self.calls.is_empty() && self.mail.nodes_len() == 0 {
            assert_eq!(self.mail.data_len(), self.call_data.len(), "private data is left over");
        }
    }
}
