//! Ids that librdmacm cannot destroy because it waits for ibacm.

use cmid_proto::{ChannelKey, Errno, IdKey, Outcome};

use crate::forgotten::Tables;
use crate::librdmacm::Rdmacm;
use crate::librdmacm::id::Id;

impl Rdmacm {
    /// The numbers of ids and channels that are set aside.
    pub(crate) fn set_aside(&self) -> (usize, usize) {
        (self.ids.aside().len(), self.channels.aside().len())
    }

    /// Destroys an id. Where librdmacm waits for ibacm on its behalf (acm.rs) it is set aside, and destroyed when
    /// that is over.
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

    /// A call of rdma_resolve_route that a thread has made for an id on this channel, and that failed. An id that is
    /// only kept until its call is over is destroyed.
    pub(crate) fn failed_elsewhere(&mut self, on: ChannelKey) -> Option<(IdKey, Errno)> {
        loop {
            let (id, outcome) = self.channels.get(on)?.bell()?.answer()?;
            if self.ids.is_aside(id) {
                // If that fails it stays.
                let _ = self.destroy(id);
            } else if let Err(errno) = outcome
                && self.ids.get(id).is_some()
            {
                return Some((id, errno));
            }
        }
    }
}
