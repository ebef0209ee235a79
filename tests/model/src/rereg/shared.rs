//! Memory that several regions share, and slices of it.

use std::rc::Rc;

use cmid_proto::memory::{Access, Traffic};

use super::World;
use super::things::{Memory, Work};
use crate::say::say;

/// The choices of memory: one is empty, some are handles of memory that there is.
pub(super) const CHOICES: usize = 16;
const EMPTY: usize = CHOICES - 1;
const SHARED: std::ops::Range<usize> = EMPTY - 4..EMPTY;

impl World {
    /// Returns a handle of new memory, or of memory that there is.
    pub(super) fn memory(&mut self, choice: usize) -> Memory {
        self.made += 1;
        let whole = if SHARED.contains(&choice) { self.any_whole(choice) } else { None };
        say(|| format!("memory {} shares: {}", self.made, whole.is_some()));
        let (whole, dropped) = (whole.unwrap_or_default(), Rc::clone(&self.dropped));
        self.wholes.push(Rc::downgrade(&whole));
        Memory { number: self.made, len: usize::from(choice != EMPTY), whole, dropped }
    }

    /// The memory of a region or of a handle outside.
    fn any_whole(&self, choice: usize) -> Option<Rc<()>> {
        let inside = self.members.iter().filter_map(|member| member.region.buffer());
        let all: Vec<_> = inside.chain(self.outside.values().flatten()).filter(|memory| memory.len > 0).collect();
        let memory = all.get(choice.checked_rem(all.len())?)?;
        Some(Rc::clone(&memory.whole))
    }

    /// The program drops the first handle outside.
    pub(super) fn let_go(&mut self) {
        if let Some(memory) = self.outside.values_mut().find_map(Option::take) {
            say(|| format!("memory {} is dropped", memory.number));
            self.let_go += 1;
        }
    }

    /// Where a slice is granted, nothing else writes. What a packet is copied to is not let go.
    pub(super) fn look_at_slices(&self) {
        let gone = self.device.late.iter().find(|(_, memory)| self.outside.contains_key(memory));
        assert_eq!(gone, None, "a packet to the registration is copied to memory that was let go");
        for at in 0..self.members.len() {
            let Some(memory) = self.sliced(at) else { continue };
            for (number, written) in self.written_by_others() {
                let is_same = self.wholes[number as usize - 1].as_ptr() == Rc::as_ptr(&memory.whole);
                assert!(!is_same, "{written} under a slice of region {at}");
            }
        }
    }

    /// The memory of a region that lends a slice to the program, as the devices decide (`Mr::slice`).
    fn sliced(&self, at: usize) -> Option<&Memory> {
        let region = &self.members[at].region;
        let is_private = !region.access()?.lets_peers_write() && !region.is_exposed();
        let memory = region.buffer()?;
        (is_private && memory.is_alone() && self.traffic(at) == Traffic::Quiet).then_some(memory)
    }

    /// The handles of memory that peers and polls may write to, and how.
    fn written_by_others(&self) -> Vec<(u32, String)> {
        let peers = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let bound: Vec<_> = self.device.bound().collect();
        let open = self.device.entries.iter();
        let open = open.filter(|(key, entry)| entry.access.intersects(peers) || bound.contains(key));
        let by_peers = open.flat_map(|(key, entry)| {
            let referred = [Some(entry.memory), entry.known].into_iter().flatten();
            referred.map(move |memory| (memory, format!("a peer writes to memory {memory} of registration {key}")))
        });
        let late = self.device.late.iter();
        let late =
            late.map(|(key, memory)| (*memory, format!("a packet to registration {key} is copied to memory {memory}")));
        let polled = self.flights.iter().filter_map(|flight| match flight.work {
            Work::Receive(memory) => Some((memory, format!("a poll writes to memory {memory}"))),
            Work::Bind(..) | Work::Invalidate(..) | Work::Nothing => None,
        });
        by_peers.chain(late).chain(polled).collect()
    }
}
