//! The states of a QP.

use cmid_proto::datapath::QpState;

/// The states of a QP that librdmacm uses; it creates QPs in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PairState {
    /// Receives can be posted.
    Init,
    /// Receives.
    Rtr,
    /// Receives and sends.
    Rts,
    /// Flushes all posted work requests.
    Err,
}

impl From<PairState> for QpState {
    fn from(state: PairState) -> Self {
        match state {
            PairState::Init => QpState::INIT,
            PairState::Rtr => QpState::RTR,
            PairState::Rts => QpState::RTS,
            PairState::Err => QpState::ERR,
        }
    }
}
