//! QPs, as far as scenarios look at them and move data with them.

use std::fmt::Debug;
use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::memory::Access;

/// The state of a QP, under the name that both devices have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Receives can be posted: before the connection stands.
    Init,
    /// It receives.
    Rtr,
    /// It receives and sends.
    Rts,
    /// All that is posted comes back flushed.
    Err,
    /// Another one, by its number in `enum ibv_qp_state`.
    Other(u32),
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    Success,
    /// The local memory may not be used so (`IBV_WC_LOC_PROT_ERR`).
    LocalProtection,
    /// Not done, because the QP was in the error state, or went there (`IBV_WC_WR_FLUSH_ERR`).
    Flushed,
    /// A window could not be bound (`IBV_WC_MW_BIND_ERR`).
    Bind,
    /// The peer's memory may not be used so (`IBV_WC_REM_ACCESS_ERR`).
    RemoteAccess,
    /// The peer could not do it (`IBV_WC_REM_OP_ERR`).
    RemoteOperation,
    /// Another one, by its number in `enum ibv_wc_status`.
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

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number that it was posted with.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
}

/// Memory of the peer, as the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address.
    pub addr: u64,
    /// The key for it.
    pub rkey: u32,
}

/// A QP on an id, with a CQ of its own. Dropping it gives up a handle; the id keeps its own.
pub trait TestQp: Debug + Sized {
    /// Memory that can be posted to it.
    type Mr;
    /// A memory window that it can bind.
    type Mw: TestMw;

    /// Its state.
    ///
    /// # Errors
    /// What the device says.
    fn state(&self) -> Result<QpState, Errno>;

    /// Posts a message to be sent.
    ///
    /// # Errors
    /// What the device says.
    fn post_send(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts a place for a message to arrive at.
    ///
    /// # Errors
    /// What the device says.
    fn post_recv(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno>;

    /// Posts an RDMA read of the peer's memory.
    ///
    /// # Errors
    /// What the device says.
    fn post_read(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno>;

    /// Posts an RDMA write to the peer's memory.
    ///
    /// # Errors
    /// What the device says.
    fn post_write(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno>;

    /// Posts that a window is to be bound to a part of a registration, with these rights.
    ///
    /// # Errors
    /// What the device says.
    fn post_bind(
        &mut self,
        wr_id: u64,
        mw: &mut Self::Mw,
        mr: &Self::Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno>;

    /// Posts that what a window is bound to is to be taken back.
    ///
    /// # Errors
    /// What the device says.
    fn post_invalidate(&mut self, wr_id: u64, mw: &mut Self::Mw) -> Result<(), Errno>;

    /// The next completion of its CQ, if there is one.
    ///
    /// # Errors
    /// What the device says.
    fn poll(&mut self) -> Result<Option<Done>, Errno>;
}

/// A memory window.
pub trait TestMw: Debug {
    /// The key for the peer, once it is bound.
    fn rkey(&self) -> u32;
}
