//! Teardown: the end of a connection after which its memory may be reused.

use super::Core;
use super::begun::{Following, done};
use super::due::Due;
use crate::id::Rare;
use crate::key::IdKey;

impl Core {
    /// Called after a DISCONNECTED or REJECTED of an id in a teardown. If both sides disconnect at the same moment, each
    /// kernel treats the other's request as the reply, and begins no time wait unless one of the sides also replies
    /// (`cm_dreq_handler`, `cm_send_drep_locked`). In all other cases the second disconnect has no effect.
    pub(super) fn disconnect_again(&mut self, key: IdKey) {
        if let Some(id) = self.ids.get_mut(key).filter(|id| !id.rare.contains(Rare::DISCONNECT_DUE)) {
            id.rare.insert(Rare::DISCONNECT_DUE);
            self.due.push_back(Due::Disconnect(key));
        }
    }

    /// Handles the return of the second disconnect. The teardown continues until its deadline, whatever the outcome.
    pub(super) fn disconnected_again(&mut self, key: IdKey) -> Following<'static> {
        self.made(Due::Disconnect(key));
        if let Some(id) = self.ids.get_mut(key) {
            id.rare.remove(Rare::DISCONNECT_DUE);
        }
        done()
    }
}
