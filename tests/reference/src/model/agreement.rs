//! What state an id must be in when its application has heard everything: the kernel's, as far as that can be told apart.

use cmid_proto::State;

use super::kernel::{Id, Stage};

/// Whether the core's view can be that of an id in this stage.
pub(crate) fn agrees(id: &Id, state: State) -> bool {
    if id.removed {
        // Nobody has told of it what was not accepted.
        let unheard = id.deaf && matches!(state, State::Requested | State::Asked | State::Failed);
        return unheard || state == State::Removed;
    }
    match id.stage {
        Stage::Idle => state == State::Idle,
        Stage::Bound => state == State::Bound,
        Stage::AddrQuery => state == State::AddrResolving,
        Stage::AddrResolved => state == State::AddrResolved,
        Stage::RouteQuery => state == State::RouteResolving,
        Stage::RouteResolved => state == State::RouteResolved,
        Stage::Listen => state == State::Listening,
        Stage::ReqSent => state == State::Connecting,
        Stage::RepRcvd => state == State::Responded,
        Stage::ReqRcvd => state == State::Requested,
        Stage::RepSent => state == State::Accepting,
        Stage::Established => state == State::Connected,
        Stage::DreqSent => matches!(state, State::Disconnecting | State::Closing),
        // After requests that crossed each side takes the other's for the answer; a teardown answers it all the same.
        Stage::DreqRcvd => matches!(state, State::PeerClosed | State::TimeWait),
        Stage::TimeWait => matches!(state, State::TimeWait | State::Closing),
        Stage::SidrSent => state == State::Asking,
        Stage::SidrRcvd => state == State::Asked,
        Stage::Over if id.disconnected => state == State::Closed,
        // Nobody has told it that the peer has gone.
        Stage::Over if id.deaf => matches!(state, State::Requested | State::Asked | State::Failed),
        Stage::Over if id.datagram => matches!(state, State::Answered | State::Failed),
        // A teardown that the peer has cut short waits for its deadline.
        Stage::Over => matches!(state, State::Failed | State::Closing),
    }
}
