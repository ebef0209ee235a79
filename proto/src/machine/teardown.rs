//! The end of a connection after which memory may be used again.

use super::Core;
use crate::device::Call;
use crate::event::CmEvent;
use crate::id::Doing;
use crate::key::IdKey;
use crate::state::State;

impl Core {
    /// An event has reached an id. Where both sides disconnect at the same moment each takes the other's request for the
    /// answer, and the kernel begins no time wait, unless one of them answers as well (`cm_dreq_handler`,
    /// `cm_send_drep_locked`). Where it was no such crossing the second disconnect does nothing.
    pub(super) fn note_teardown(&mut self, key: IdKey, event: CmEvent) {
        if let Some(id) = self.ids.get_mut(key)
            && id.state == State::Closing
            && event == CmEvent::Disconnected
        {
            id.answer_due = true;
            self.continue_teardown(key);
        }
    }

    /// Makes the second disconnect as soon as the id's call has returned.
    pub(super) fn continue_teardown(&mut self, key: IdKey) {
        let Some(id) = self.ids.get_mut(key) else { return };
        if id.answer_due && id.doing == Doing::Nothing {
            id.answer_due = false;
            if id.state == State::Closing {
                self.call_for_id(key, Doing::Answer, Call::Disconnect { id: key });
            }
        }
    }
}
