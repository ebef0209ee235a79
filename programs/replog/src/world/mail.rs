//! Messages over TCP between clients and replicas. A message takes some milliseconds, and may overtake others: each is on
//! a connection of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use cmid_mio::proto::Time;
use cmid_mio::sim::Node;

/// The longest time of a message.
const LATENCY: Duration = Duration::from_millis(5);

/// What a program receives.
#[derive(Debug)]
pub(super) struct Mail<T>(RefCell<Inbox<T>>);

#[derive(Debug)]
struct Inbox<T> {
    /// The host of the program; `None` before its start.
    owner: Option<Node>,
    /// By the time of arrival, on the owner's clock, and the number.
    letters: BTreeMap<(Time, u64), T>,
    last: u64,
}

impl<T> Default for Mail<T> {
    fn default() -> Self {
        Mail(RefCell::new(Inbox { owner: None, letters: BTreeMap::new(), last: 0 }))
    }
}

impl<T> Mail<T> {
    /// A program starts: what has come before is lost.
    pub(super) fn open(&self, node: &Node) {
        let inbox = &mut *self.0.borrow_mut();
        inbox.owner = Some(node.clone());
        inbox.letters.clear();
    }

    /// Sends a message to the program, which gets a turn.
    pub(super) fn post(&self, letter: T) {
        let inbox = &mut *self.0.borrow_mut();
        let Some(owner) = &inbox.owner else { return };
        inbox.last += 1;
        inbox.letters.insert((owner.now().after(owner.random_time(LATENCY)), inbox.last), letter);
        owner.wake();
    }

    /// Takes the next message that has arrived.
    pub(super) fn take(&self, now: Time) -> Option<T> {
        let inbox = &mut *self.0.borrow_mut();
        let first = inbox.letters.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Returns when the next message arrives.
    pub(super) fn due(&self) -> Option<Time> {
        self.0.borrow().letters.first_key_value().map(|(&(due, _), _)| due)
    }
}
