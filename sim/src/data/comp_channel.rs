//! Completion channels.

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use cmid_proto::Errno;
use cmid_proto::datapath::CompletionChannel;

use crate::data::notices::Notices;
use crate::fabric::Fabric;
use crate::index::{CqNo, DeviceNo};

/// A completion channel for several CQs. After the handle is dropped, it exists until its last CQ is destroyed.
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) fabric: Fabric,
    pub(crate) device: DeviceNo,
    pub(crate) notices: Notices,
}

impl CompChannel {
    pub(crate) fn create(fabric: &Fabric, device: DeviceNo) -> Result<Self, Errno> {
        Ok(CompChannel { fabric: fabric.clone(), device, notices: Notices::of_several_cqs()? })
    }
}

impl CompletionChannel for CompChannel {
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_> {
        self.notices.signal.as_fd()
    }

    /// # Errors
    /// None in the simulator.
    fn next_notification(&self) -> Result<Option<u32>, Errno> {
        Ok(self.notices.next().map(CqNo::number))
    }
}
