//! Teardown: the end of a connection after which its memory may be reused.

use super::Core;
use crate::call::Call;
use crate::id::Id;
use crate::id::PendingCall;
use crate::key::IdKey;
use crate::state::State;

impl Core {
    /// Called after a DISCONNECTED or REJECTED of an id. If both sides disconnect at the same moment, each kernel
    /// treats the other's request as the reply, and begins no time wait unless one of the sides also replies
    /// (`cm_dreq_handler`, `cm_send_drep_locked`). In all other cases the second disconnect has no effect.
    pub(super) fn note_teardown(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key).filter(|id| id.state == State::Closing) {
            id.answer_due = true;
            self.continue_teardown(key);
        }
    }

    /// Whether the connection has ended while the first disconnect of a teardown was under way. Then the teardown
    /// continues, whatever that disconnect returns.
    pub(super) fn is_past_recall(&self, key: IdKey) -> bool {
        self.ids.get(key).is_some_and(|id| id.state == State::Closing && id.answer_due)
    }

    /// Makes the second disconnect as soon as no other call of the id is under way.
    pub(super) fn continue_teardown(&mut self, key: IdKey) {
        let answers = |id: &mut Id| id.pending_call == PendingCall::Nothing && core::mem::take(&mut id.answer_due);
        if self.ids.get_mut(key).is_some_and(answers) {
            self.call_for_id(key, PendingCall::Answer, Call::Disconnect { id: key });
        }
    }
}
