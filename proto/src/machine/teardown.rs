//! The end of a connection after which memory may be used again.

use super::Core;
use crate::call::Call;
use crate::id::PendingCall;
use crate::key::IdKey;
use crate::state::State;

impl Core {
    /// A DISCONNECTED or REJECTED has reached an id. Where both sides disconnect at the same moment each takes the other's request for the
    /// answer, and the kernel begins no time wait, unless one of them answers as well (`cm_dreq_handler`,
    /// `cm_send_drep_locked`). Where it was no such crossing the second disconnect does nothing.
    pub(super) fn note_teardown(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key)
            && id.state == State::Closing
        {
            id.answer_due = true;
            self.continue_teardown(key);
        }
    }

    /// Whether the connection has come to its end while the first disconnect of a teardown was under way. Then there is no
    /// way back, whatever that disconnect returns.
    pub(super) fn is_past_recall(&self, key: IdKey) -> bool {
        self.ids.get(key).is_some_and(|id| id.state == State::Closing && id.answer_due)
    }

    /// Makes the second disconnect as soon as nothing else is done for the id.
    pub(super) fn continue_teardown(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key)
            && id.pending_call == PendingCall::Nothing
            && core::mem::take(&mut id.answer_due)
        {
            self.call_for_id(key, PendingCall::Answer, Call::Disconnect { id: key });
        }
    }
}
