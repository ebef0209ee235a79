//! Ack tokens for states that are cloned.
//!
//! An ack token cannot be cloned, so that an application acks once. A checker continues from one state in several
//! ways, and acks in each. An ack token identifies only the id of its ack. Another core with an id of the same key
//! can therefore create one.

use std::cell::RefCell;
use std::collections::HashMap;

use cmid_proto::{AckToken, Acks, ChannelKey, CmEvent, Core, IdKey, Limits, PortSpace, RawEvent, Request, Time};

use super::calls::well;

/// A core with an id of one key.
struct KeyAllocator {
    core: Core,
    channel: ChannelKey,
    id: IdKey,
}

thread_local! {
    static MINTS: RefCell<HashMap<IdKey, KeyAllocator>> = RefCell::new(HashMap::new());
}

/// An ack token for an event of an id.
pub(super) fn ack_token(id: IdKey) -> AckToken {
    MINTS.with_borrow_mut(|mints| mints.entry(id).or_insert_with(|| KeyAllocator::new(id)).make())
}

impl KeyAllocator {
    /// Creates ids, and destroys them until one has the key.
    fn new(id: IdKey) -> KeyAllocator {
        let mut core = Core::new(Limits { core: Some(id.core()), ..Limits::LARGE });
        let (channel, begun) = core.open_channel(Acks::Explicit).expect("an empty core has room");
        well(begun);
        loop {
            let (fresh, begun) = core.create_id(Some(channel), PortSpace::Tcp).expect("keys are small");
            well(begun);
            if fresh == id {
                return KeyAllocator { core, channel, id };
            }
            // The same slot with an earlier generation.
            if fresh.slot() == id.slot() {
                well(core.begin(Time::ZERO, fresh, &Request::Destroy, Time::NEVER).expect("it lives"));
            }
        }
    }

    fn make(&mut self) -> AckToken {
        self.core
            .handle_event(self.channel, RawEvent::new(self.id, CmEvent::User))
            .expect("any id may have this event");
        self.core.poll_event(self.channel).and_then(|event| event.ack_token).expect("the channel has explicit acks")
    }
}
