//! Common traits for the data path of both devices. Their types are similar, but neither crate depends on the other.

use std::fmt::Debug;
use std::ops::Range;

use cmid_proto::memory::{Access, Change, Error, MrState, PdState, Policy, Returned, Way};
use cmid_proto::{Attaching, Device, Errno, IdKey};

use crate::memory::Reregistered;
use crate::{Done, QpState, Remote, Status, TestMr, TestMw, TestPd, TestQp};

/// The number of completions of a CQ, and of work requests of each half of a QP.
const CQ_DEPTH: u32 = 16;
const QP_DEPTH: u32 = 8;

/// A device with PDs and QPs for scenarios.
pub trait TestDevice: Device + Sized {
    /// Its protection domains.
    type Pd: TestPd<Mr = Self::Mr, Mw = Self::Mw>;
    /// Its registered memory.
    type Mr: TestMr<Pd = Self::Pd>;
    /// Its memory windows.
    type Mw: TestMw;
    /// Its QPs.
    type Qp: TestQp<Mr = Self::Mr, Mw = Self::Mw>;

    /// Allocates a protection domain on the id's device.
    ///
    /// # Errors
    /// The error of the device.
    fn make_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno>;

    /// Creates a QP with its own CQ on an id.
    ///
    /// # Errors
    /// The error of the device.
    fn make_qp(&mut self, attaching: Attaching<'_>, pd: &Self::Pd) -> Result<Self::Qp, Errno>;

    /// Destroys the QP of the id.
    ///
    /// # Errors
    /// The error of the device.
    fn unmake_qp(&mut self, id: IdKey) -> Result<(), Errno>;
}

/// A QP and the CQ for both of its halves.
#[derive(Debug)]
pub struct WithCq<Q, C> {
    qp: Q,
    cq: C,
}

/// Converts a buffer to a `Vec`; scenarios always pass a `Vec`.
trait IntoVec {
    fn into_bytes(self) -> Vec<u8>;
}

impl IntoVec for Vec<u8> {
    fn into_bytes(self) -> Vec<u8> {
        self
    }
}

#[cfg(feature = "verbs")]
impl IntoVec for cmid_verbs::Buffer {
    fn into_bytes(self) -> Vec<u8> {
        // Every buffer here is a Vec. An empty result would make the scenario fail.
        self.into_vec().unwrap_or_default()
    }
}

macro_rules! test_device {
    ($krate:ident, $device:ident, $users_at_device:expr) => {
        impl TestDevice for $krate::$device {
            type Pd = $krate::Pd;
            type Mr = $krate::Mr;
            type Mw = $krate::Mw;
            type Qp = WithCq<$krate::Qp, $krate::Cq>;

            fn make_pd(&mut self, id: IdKey) -> Result<Self::Pd, Errno> {
                self.alloc_pd(id)
            }
            fn make_qp(&mut self, attaching: Attaching<'_>, pd: &Self::Pd) -> Result<Self::Qp, Errno> {
                let cq = self.create_cq(attaching.id(), CQ_DEPTH)?;
                let caps = $krate::Caps { max_send_wr: QP_DEPTH, max_recv_wr: QP_DEPTH, ..Default::default() };
                Ok(WithCq { qp: self.create_qp(attaching, pd, &cq, &cq, caps)?, cq })
            }
            fn unmake_qp(&mut self, id: IdKey) -> Result<(), Errno> {
                self.destroy_qp(id)
            }
        }

        impl TestPd for $krate::Pd {
            type Mr = $krate::Mr;
            type Mw = $krate::Mw;

            fn register(&self, buffer: Vec<u8>, access: Access) -> Result<Self::Mr, (Vec<u8>, Error)> {
                $krate::Pd::register(self, buffer, access).map_err(|(buffer, error)| (buffer.into_bytes(), error))
            }
            fn alloc_mw(&self) -> Result<Self::Mw, Errno> {
                $krate::Pd::alloc_mw(self)
            }
            fn users(&self) -> u32 {
                $krate::Pd::users(self)
            }
            fn users_at_device(&self) -> Option<u32> {
                $users_at_device(self)
            }
            fn state(&self) -> PdState {
                $krate::Pd::state(self)
            }
            fn dealloc(&self) -> Result<(), Error> {
                $krate::Pd::dealloc(self)
            }
        }

        impl TestMr for $krate::Mr {
            type Pd = $krate::Pd;

            fn addr(&self) -> u64 {
                $krate::Mr::addr(self)
            }
            fn len(&self) -> usize {
                $krate::Mr::len(self)
            }
            fn lkey(&self) -> u32 {
                $krate::Mr::lkey(self)
            }
            fn rkey(&self) -> u32 {
                $krate::Mr::rkey(self)
            }
            fn state(&self) -> MrState {
                $krate::Mr::state(self)
            }
            fn access(&self) -> Option<Access> {
                $krate::Mr::access(self)
            }
            fn way(&self) -> Way {
                $krate::Mr::way(self)
            }
            fn pd(&self) -> Option<Self::Pd> {
                $krate::Mr::pd(self)
            }
            fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
                $krate::Mr::read(self, offset, into)
            }
            fn write(&mut self, offset: usize, from: &[u8]) -> Result<(), Errno> {
                $krate::Mr::write(self, offset, from)
            }
            fn reregister(&mut self, change: Change<Self::Pd, Vec<u8>>, policy: Policy) -> Reregistered {
                let change = Change { buffer: change.buffer.map(Into::into), pd: change.pd, access: change.access };
                let ended = $krate::Mr::reregister(self, change, policy);
                (ended.result, ended.buffer.map(IntoVec::into_bytes))
            }
            fn deregister(self) -> Result<Returned<Vec<u8>>, (Self, Error)> {
                let returned = $krate::Mr::deregister(self)?;
                Ok(Returned { buffer: returned.buffer.into_bytes(), other: returned.other.map(IntoVec::into_bytes) })
            }
        }

        impl TestMw for $krate::Mw {
            fn rkey(&self) -> u32 {
                $krate::Mw::rkey(self)
            }
        }

        impl TestQp for WithCq<$krate::Qp, $krate::Cq> {
            type Mr = $krate::Mr;
            type Mw = $krate::Mw;

            fn state(&self) -> Result<QpState, Errno> {
                Ok(QpState::from(self.qp.state()?))
            }
            fn post_send(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                self.qp.post_send(wr_id, mr, range)
            }
            fn post_recv(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>) -> Result<(), Errno> {
                self.qp.post_recv(wr_id, mr, range)
            }
            fn post_read(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, from: Remote) -> Result<(), Errno> {
                self.qp.post_read(wr_id, mr, range, $krate::Remote { addr: from.addr, rkey: from.rkey })
            }
            fn post_write(&mut self, wr_id: u64, mr: &Self::Mr, range: Range<usize>, to: Remote) -> Result<(), Errno> {
                self.qp.post_write(wr_id, mr, range, $krate::Remote { addr: to.addr, rkey: to.rkey })
            }
            fn post_bind(
                &mut self,
                wr_id: u64,
                mw: &mut Self::Mw,
                mr: &Self::Mr,
                range: Range<usize>,
                access: Access,
            ) -> Result<(), Errno> {
                self.qp.post_bind(wr_id, mw, mr, range, access)
            }
            fn post_invalidate(&mut self, wr_id: u64, mw: &mut Self::Mw) -> Result<(), Errno> {
                self.qp.post_invalidate(wr_id, mw)
            }
            fn poll(&mut self) -> Result<Option<Done>, Errno> {
                let mut one = [$krate::Completion::default()];
                let count = self.cq.poll(&mut one)?;
                let [done] = one;
                Ok((count > 0).then_some(Done { wr_id: done.wr_id, status: Status::from_raw(done.status.0) }))
            }
        }
    };
}

test_device!(cmid_sim, SimDevice, cmid_sim::Pd::users_at_device);
#[cfg(feature = "verbs")]
test_device!(cmid_verbs, Verbs, |_| None);

impl From<cmid_sim::QpState> for QpState {
    fn from(state: cmid_sim::QpState) -> Self {
        match state {
            cmid_sim::QpState::Init => QpState::Init,
            cmid_sim::QpState::Rtr => QpState::Rtr,
            cmid_sim::QpState::Rts => QpState::Rts,
            cmid_sim::QpState::Err => QpState::Err,
        }
    }
}

#[cfg(feature = "verbs")]
impl From<cmid_verbs::QpState> for QpState {
    fn from(state: cmid_verbs::QpState) -> Self {
        match state {
            cmid_verbs::QpState::INIT => QpState::Init,
            cmid_verbs::QpState::RTR => QpState::Rtr,
            cmid_verbs::QpState::RTS => QpState::Rts,
            cmid_verbs::QpState::ERR => QpState::Err,
            cmid_verbs::QpState(other) => QpState::Other(other),
        }
    }
}
