//! Ids that librdmacm cannot destroy because it waits for ibacm.

use cmid_proto::{ChannelKey, Errno, IdKey, Outcome};

use crate::forgotten::Tables;
use crate::librdmacm::Rdmacm;
use crate::librdmacm::id::Id;

impl Rdmacm {
    /// Returns the numbers of ids and channels that are set aside.
    pub(crate) fn set_aside(&self) -> (usize, usize) {
        (self.ids.aside().len(), self.channels.aside().len())
    }

    /// Destroys an id. While librdmacm waits for ibacm for this id (acm.rs), the id is set aside, and destroyed after
    /// the wait.
    #[inline(never)]
    pub(crate) fn destroy_or_abandon(&mut self, key: IdKey) -> Outcome {
        match self.destroy(key) {
            Err(Errno::EBUSY) if self.ids.get(key).is_some_and(Id::is_busy) => {
                self.ids.shelve(key)?;
                self.id(key)?.abandon();
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Returns the next failed rdma_resolve_route of the thread for an id on this channel. Destroys ids that were
    /// only kept until the end of their call.
    pub(crate) fn failed_elsewhere(&mut self, on: ChannelKey) -> Option<(IdKey, Errno)> {
        loop {
            let (id, outcome) = self.channels.get(on)?.bell()?.answer()?;
            if self.ids.is_aside(id) {
                // If the destroy fails, the id stays.
                let _ = self.destroy(id);
            } else if let (Err(errno), Some(_)) = (outcome, self.ids.get(id)) {
                return Some((id, errno));
            }
        }
    }
}
