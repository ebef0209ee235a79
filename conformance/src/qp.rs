//! QPs, as far as scenarios look at them.

use std::fmt::Debug;

use cmid_proto::{Errno, IdKey, Pollable};

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

/// A QP that a scenario has put on an id. Dropping it gives up a handle; the id keeps its own.
pub trait TestQp: Debug {
    /// Its state.
    ///
    /// # Errors
    /// What the device says.
    fn state(&self) -> Result<QpState, Errno>;
}

impl TestQp for cmid_sim::Qp {
    fn state(&self) -> Result<QpState, Errno> {
        Ok(match cmid_sim::Qp::state(self)? {
            cmid_sim::QpState::Init => QpState::Init,
            cmid_sim::QpState::Rtr => QpState::Rtr,
            cmid_sim::QpState::Rts => QpState::Rts,
            cmid_sim::QpState::Err => QpState::Err,
        })
    }
}

#[cfg(feature = "verbs")]
impl TestQp for cmid_verbs::Qp {
    fn state(&self) -> Result<QpState, Errno> {
        Ok(match cmid_verbs::Qp::state(self)? {
            cmid_verbs::QpState::INIT => QpState::Init,
            cmid_verbs::QpState::RTR => QpState::Rtr,
            cmid_verbs::QpState::RTS => QpState::Rts,
            cmid_verbs::QpState::ERR => QpState::Err,
            cmid_verbs::QpState(other) => QpState::Other(other),
        })
    }
}

/// A device on which a scenario can make QPs.
pub trait TestDevice: Pollable {
    /// Makes a QP with CQs of its own on an id.
    ///
    /// # Errors
    /// What the device says.
    fn make_qp(&mut self, id: IdKey) -> Result<Box<dyn TestQp>, Errno>;

    /// Takes the QP off the id.
    ///
    /// # Errors
    /// What the device says.
    fn unmake_qp(&mut self, id: IdKey) -> Result<(), Errno>;
}

macro_rules! test_device {
    ($krate:ident, $device:ident) => {
        impl TestDevice for $krate::$device {
            fn make_qp(&mut self, id: IdKey) -> Result<Box<dyn TestQp>, Errno> {
                let pd = self.alloc_pd(id)?;
                let cq = self.create_cq(id, 16)?;
                let caps = $krate::Caps { max_send_wr: 8, max_recv_wr: 8, ..Default::default() };
                Ok(Box::new(self.create_qp(id, &pd, &cq, &cq, caps)?))
            }
            fn unmake_qp(&mut self, id: IdKey) -> Result<(), Errno> {
                self.destroy_qp(id)
            }
        }
    };
}

test_device!(cmid_sim, SimDevice);
#[cfg(feature = "verbs")]
test_device!(cmid_verbs, Verbs);
