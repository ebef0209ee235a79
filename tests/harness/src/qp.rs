//! Traits of QPs for scenarios.

use std::fmt::Debug;
use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::memory::Access;

/// The state of a QP, common to both devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Receives can be posted; the connection is not established.
    Init,
    /// It receives.
    Rtr,
    /// It receives and sends.
    Rts,
    /// All posted work requests are flushed.
    Err,
    /// Another value, by its number in the C enum.
    Other(u32),
}

/// The status of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Success,
    /// The local memory does not permit this access (`IBV_WC_LOC_PROT_ERR`).
    LocalProtection,
    /// Not executed, because the QP was in its error state, or entered it (`IBV_WC_WR_FLUSH_ERR`).
    Flushed,
    /// A window could not be bound (`IBV_WC_MW_BIND_ERR`).
    Bind,
    /// The peer's memory does not permit this access (`IBV_WC_REM_ACCESS_ERR`).
    RemoteAccess,
    /// The peer could not execute it (`IBV_WC_REM_OP_ERR`).
    RemoteOperation,
    /// Another value, by its number in the C enum.
    Other(u32),
}

impl Status {
    pub(crate) const fn from_raw(number: u32) -> Self {
        match number {
            0 => Status::Success,
            4 => Status::LocalProtection,
            5 => Status::Flushed,
            6 => Status::Bind,
            10 => Status::RemoteAccess,
            11 => Status::RemoteOperation,
            other => Status::Other(other),
        }
    }
}

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number that it was posted with.
    pub wr_id: u64,
    /// Its status.
    pub status: Status,
}

/// The address and key of memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address.
    pub addr: u64,
    /// The key for it.
    pub rkey: u32,
}

/// A QP of an id, with its own CQ. Dropping it drops a handle; the id keeps its own.
pub trait TestQp: Debug + Sized {
    /// Memory that can be posted to it.
    type Mr;
    /// A memory window that it can bind.
    type Mw: TestMw;

    /// Its state.
    ///
    /// # Errors
    /// The error of the device.
    fn state(&self) -> Result<QpState, Errno>;

    /// Posts a send.
    ///
    /// # Errors
    /// The error of the device.
    fn post_send(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts a receive.
    ///
    /// # Errors
    /// The error of the device.
    fn post_recv(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts an RDMA read of the peer's memory.
    ///
    /// # Errors
    /// The error of the device.
    fn post_read(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno>;

    /// Posts an RDMA write to the peer's memory.
    ///
    /// # Errors
    /// The error of the device.
    fn post_write(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno>;

    /// Posts a bind of a window to a part of a registration, with these rights.
    ///
    /// # Errors
    /// The error of the device.
    fn post_bind(
        &mut self,
        wr_id: u64,
        mw: &mut Self::Mw,
        mr: &Self::Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno>;

    /// Posts an invalidation of a window.
    ///
    /// # Errors
    /// The error of the device.
    fn post_invalidate(&mut self, wr_id: u64, mw: &mut Self::Mw) -> Result<(), Errno>;

    /// The next completion of its CQ, if there is one.
    ///
    /// # Errors
    /// The error of the device.
    fn poll(&mut self) -> Result<Option<Done>, Errno>;
}

/// A memory window.
pub trait TestMw: Debug {
    /// The key for the peer, once it is bound.
    fn rkey(&self) -> u32;
}
