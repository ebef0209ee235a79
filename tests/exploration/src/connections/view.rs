//! A state without its history, for the checker's comparison of states.
//!
//! Some numbers of a core only grow: it counts news and late events. They would make every state a new one. An event's
//! tag is a name: it means nothing but "the same one". So a state is hashed into words first. Then the counters are left
//! out, and each tag is replaced by the order in which it turns up.
//!
//! A tag is the only i32 from [`TAGS`] on. That the counters are the last words is checked each time.

use core::hash::{Hash, Hasher};

use cmid_proto::Core;

/// Tags of events begin here. No status or backlog of the worlds lies in the range, which has room for long paths.
pub(super) const TAGS: core::ops::Range<i32> = 1_000_000..2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Plain(u64),
    Tag(i32),
}

/// Records the values that are hashed.
#[derive(Default)]
struct Words(Vec<Word>);

impl Words {
    fn plain(&mut self, value: u64) {
        self.0.push(Word::Plain(value));
    }

    /// The counters of a core are its last words: those of [`Core::counters`], and [`Core::activity`].
    fn drop_counters(&mut self, core: &Core) {
        let counters = core.summary().counters;
        let known = [counters.late, counters.stray, counters.faults, counters.discarded, core.activity()];
        let tail = self.0.len() - known.len();
        assert_eq!(self.0[tail..], known.map(Word::Plain), "the fields of Core are not in the order known here");
        self.0.truncate(tail);
    }
}

impl Hasher for Words {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.plain(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.plain(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.plain(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.plain(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.plain(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.plain(value as u64);
    }

    fn write_i32(&mut self, value: i32) {
        self.0.push(if TAGS.contains(&value) { Word::Tag(value) } else { Word::Plain(value as u64) });
    }
}

/// Hashes a core and its environment.
pub(super) fn hash<H: Hasher>(core: &Core, environment: &impl Hash, into: &mut H) {
    let mut words = Words(Vec::with_capacity(1024));
    core.hash(&mut words);
    words.drop_counters(core);
    environment.hash(&mut words);
    let mut names: Vec<Word> = Vec::with_capacity(16);
    for word in words.0 {
        let value = match word {
            Word::Plain(value) => value,
            Word::Tag(_) => {
                let rank = names.iter().position(|&name| name == word).unwrap_or_else(|| {
                    names.push(word);
                    names.len() - 1
                });
                // Apart from plain words, which are rarely as large.
                u64::MAX / 2 + rank as u64
            }
        };
        into.write_u64(value);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use cmid_proto::{Acks, ChannelKey, CmEvent, IdKey, Limits, PortSpace, RawEvent, Request, Time};

    use super::*;
    use crate::connections::calls::well;

    /// An id on a channel.
    fn stage() -> (Core, ChannelKey, IdKey) {
        let mut core = Core::new(Limits::SINGLE);
        let (channel, begun) = core.open_channel(Acks::OnDelivery).unwrap();
        well(begun);
        let (id, begun) = core.create_id(Some(channel), PortSpace::Tcp).unwrap();
        well(begun);
        (core, channel, id)
    }

    fn hash_of(core: &Core, environment: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash(core, environment, &mut hasher);
        hasher.finish()
    }

    fn event(core: &mut Core, (channel, id): (ChannelKey, IdKey), kind: CmEvent, tag: i32) {
        core.handle_event(channel, RawEvent { status: tag, ..RawEvent::new(id, kind) }).unwrap();
    }

    #[test]
    fn history_is_forgotten() {
        let (core, channel, id) = stage();
        let mut other = core.clone();
        let there = Request::Migrate { to: Some(channel) };
        well(other.begin(Time::ZERO, id, &there, Time::NEVER).unwrap());
        other.handle_event(channel, RawEvent::new(id, CmEvent::AddrResolved)).unwrap_err();
        while other.poll_readable().is_some() {}
        assert_ne!(core, other);
        assert_eq!(hash_of(&core, &()), hash_of(&other, &()));
    }

    #[test]
    fn names_are_forgotten_and_what_has_the_same_name_is_not() {
        let (core, channel, id) = stage();
        let (mut one, mut other) = (core.clone(), core);
        let [a, b, c] = [0, 1, 2].map(|at| TAGS.start + at);
        event(&mut one, (channel, id), CmEvent::AddrChange, a);
        event(&mut other, (channel, id), CmEvent::AddrChange, b);
        assert_eq!(hash_of(&one, &(a, c)), hash_of(&other, &(b, a)));
        assert_ne!(hash_of(&one, &(a, c)), hash_of(&other, &(a, b)));
    }

    #[test]
    fn the_present_is_not_forgotten() {
        let (core, channel, id) = stage();
        let mut changed = vec![core.clone()];
        for kind in [CmEvent::AddrChange, CmEvent::User] {
            let mut next = core.clone();
            event(&mut next, (channel, id), kind, TAGS.start);
            changed.push(next);
        }
        for deadline in [Time::NEVER, Time(1), Time(2)] {
            let mut next = core.clone();
            let dst = "10.0.0.1:7471".parse().unwrap();
            well(next.begin(Time::ZERO, id, &Request::ResolveAddr { src: None, dst }, deadline).unwrap());
            changed.push(next);
        }
        let mut hashes: Vec<_> = changed.iter().map(|core| hash_of(core, &())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), changed.len());
    }
}
