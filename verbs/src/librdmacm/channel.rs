//! One event channel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use cmid_proto::Errno;

use crate::ffi::rdma_event_channel;
use crate::librdmacm::acm;
use crate::librdmacm::bell::Bell;
use crate::librdmacm::raw_channel::RawChannel;
use crate::process::Process;

/// An open, non-blocking `rdma_event_channel`; dropping it closes it.
pub(crate) struct Channel {
    raw: Arc<RawChannel>,
    /// The number of ids that report here. `rdma_cm_id` points at its channel, so the channel must outlive them.
    pub(crate) ids: usize,
    /// `None` on systems without ibacm.
    bell: Option<Arc<Bell>>,
}

impl Channel {
    /// Opens a channel.
    pub(crate) fn open() -> Result<Self, Errno> {
        let raw = RawChannel::open()?;
        let bell = if acm::is_present() { Some(Arc::new(Bell::beside(raw.as_fd())?)) } else { None };
        Ok(Channel { raw: Arc::new(raw), ids: 0, bell })
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_event_channel {
        self.raw.as_ptr()
    }

    /// The process that opened it.
    pub(crate) fn process(&self) -> Process {
        self.raw.process()
    }

    pub(crate) fn raw(&self) -> &Arc<RawChannel> {
        &self.raw
    }

    pub(crate) fn bell(&self) -> Option<&Arc<Bell>> {
        self.bell.as_ref()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match &self.bell {
            Some(bell) => bell.as_fd(),
            None => self.raw.as_fd(),
        }
    }
}
