//! The expected state of an id after delivery of all events: the kernel's, as far as it can be distinguished.

use cmid_proto::State;

use super::kernel::{Id, Phase};

/// Whether the core's view can be that of an id in this stage.
pub(crate) fn agrees(id: &Id, state: State) -> bool {
    if id.removed {
        // A removal is not reported for an id that is not accepted.
        let unheard = id.deaf && matches!(state, State::Requested | State::SidrReqReceived | State::Failed);
        return unheard || state == State::Removed;
    }
    match id.stage {
        Phase::Idle => state == State::Idle,
        Phase::Bound => state == if id.bound_unseen { State::Idle } else { State::Bound },
        Phase::AddrQuery => state == State::AddrResolving,
        Phase::AddrResolved => state == State::AddrResolved,
        Phase::RouteQuery => state == State::RouteResolving,
        Phase::RouteResolved => state == State::RouteResolved,
        Phase::Listen => state == State::Listening,
        Phase::ReqSent => state == State::Connecting,
        Phase::RepRcvd => state == State::Responded,
        Phase::ReqRcvd => state == State::Requested,
        Phase::RepSent => state == State::Accepting,
        Phase::Established => state == State::Connected,
        Phase::DreqSent => matches!(state, State::Disconnecting | State::Closing),
        // After disconnects that crossed, each side takes the other's request for the answer; a teardown answers it
        // nevertheless.
        Phase::DreqRcvd => matches!(state, State::PeerClosed | State::TimeWait),
        Phase::TimeWait => matches!(state, State::TimeWait | State::Closing),
        Phase::SidrSent => state == State::SidrReqSent,
        Phase::SidrRcvd => state == State::SidrReqReceived,
        Phase::Over if id.disconnected => state == State::Closed,
        // The end of the peer is not reported for this id.
        Phase::Over if id.deaf => matches!(state, State::Requested | State::SidrReqReceived | State::Failed),
        Phase::Over if id.datagram => matches!(state, State::SidrResolved | State::Failed),
        // A teardown that the peer interrupts waits for its deadline.
        Phase::Over => matches!(state, State::Failed | State::Closing),
    }
}
