//! Why a handshake has failed, and whether another attempt can succeed.

use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::error::{Error, FailureCause, Refused};
use crate::event::Event;
use crate::event_result::Status;
use crate::handshake::HandshakeError;
use crate::refuse_reason::RefuseReason;
use crate::reject_code::RejectCode;

/// The private data with which a side rejects a call that crosses its own ([`Todo::Reject`](super::Todo::Reject)).
pub const CROSSED: &[u8] = b"cmid: crossed calls";

/// Why a handshake has failed. [`Cause::of`] is the usual judgement. A program whose peers reject with private data that
/// means "later" passes another one to [`Redial::failed`](super::Redial::failed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The next attempt may succeed: the peer, its program, a device or the network is away.
    Heals,
    /// The peer had a connection with the QP number of this call, and ends it (reason 10). The next attempt is made at
    /// once, and after a wait if it ends in the same way.
    Stale,
    /// The peer calls at the same time, and its call is kept ([`CROSSED`]).
    Crossed,
    /// The program of the peer has refused.
    Refused,
    /// The call itself cannot succeed: its parameters, its addresses or the rights of this process.
    Unfit,
}

impl Cause {
    /// Judges the error of a handshake of a connected service.
    ///
    /// | the handshake has ended by | cause |
    /// | --- | --- |
    /// | REJECTED with reason 28, and on iWARP with ECONNREFUSED: private data begins with [`CROSSED`] | [`Crossed`](Cause::Crossed) |
    /// | the same, with other private data that has a byte other than zero | [`Refused`](Cause::Refused) |
    /// | the same, without private data: the program of the peer has ended, or no listener has the address | [`Heals`](Cause::Heals) |
    /// | REJECTED with reason 10 | [`Stale`](Cause::Stale) |
    /// | REJECTED with reason 5, 9, 27, 29, 31 or 35: the parameters of the call do not fit | [`Unfit`](Cause::Unfit) |
    /// | REJECTED with reason 8, there is no listener, and with all others | [`Heals`](Cause::Heals) |
    /// | another event, such as UNREACHABLE, and the deadline | [`Heals`](Cause::Heals) |
    /// | a failed request: EPERM, EACCES, ENOSYS, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT, or a loopback or wildcard address | [`Unfit`](Cause::Unfit) |
    /// | a request that is refused for its arguments, or because its channel is gone or has failed | [`Unfit`](Cause::Unfit) |
    /// | an error of the application ([`HandshakeError::Attach`]) | [`Unfit`](Cause::Unfit) |
    /// | any other failed or refused request, also EINVAL, which is that of an id whose peer or device has gone, too | [`Heals`](Cause::Heals) |
    ///
    /// The reasons: IBTA specification, section 12.6.7.2; what the kernel rejects with 28: `docs/semantics.md` 4.4.
    #[must_use]
    pub fn of(error: &HandshakeError) -> Cause {
        match error {
            HandshakeError::TimedOut { .. } => Cause::Heals,
            HandshakeError::Ended { error, .. } => of_event(&error.event),
            HandshakeError::Request(error) => of_request(error),
            HandshakeError::Attach(_) => Cause::Unfit,
        }
    }
}

fn of_event(event: &Event) -> Cause {
    if event.cm() != Some(CmEvent::Rejected) {
        return Cause::Heals;
    }
    match event.meaning() {
        Status::Reject(RejectCode::CONSUMER_DEFINED) | Status::Errno(Errno::ECONNREFUSED) => {
            of_private_data(&event.private_data)
        }
        Status::Reject(RejectCode::STALE_CONN) => Cause::Stale,
        Status::Reject(
            RejectCode::UNSUPPORTED
            | RejectCode::INVALID_TRANSPORT_TYPE
            | RejectCode::INSUFFICIENT_RESP_RESOURCES
            | RejectCode::INVALID_RNR_RETRY
            | RejectCode::INVALID_CLASS_VERSION
            | RejectCode::VENDOR_OPTION_NOT_SUPPORTED,
        ) => Cause::Unfit,
        Status::Reject(_) | Status::Errno(_) | Status::Other(_) | Status::Success => Cause::Heals,
    }
}

/// The kernel fills private data with zeros, so a reject without any has zeros only.
fn of_private_data(private_data: &[u8]) -> Cause {
    if private_data.starts_with(CROSSED) {
        Cause::Crossed
    } else if private_data.iter().any(|&byte| byte != 0) {
        Cause::Refused
    } else {
        Cause::Heals
    }
}

fn of_request(error: &Error) -> Cause {
    let is_unfit = match error {
        Error::Failed(failure) => {
            failure.cause == Some(FailureCause::LoopbackPeer)
                || matches!(
                    failure.errno,
                    Errno::EPERM
                        | Errno::EACCES
                        | Errno::ENOSYS
                        | Errno::EPROTONOSUPPORT
                        | Errno::EOPNOTSUPP
                        | Errno::EAFNOSUPPORT
                )
        }
        Error::Refused(refused) => match refused {
            Refused::NoSuchChannel { .. } | Refused::ChannelFailed { .. } => true,
            Refused::Request { reason, .. } => is_of_arguments(*reason),
            Refused::NoSuchId { .. }
            | Refused::ChannelInUse { .. }
            | Refused::NothingOwed { .. }
            | Refused::Full(_) => false,
        },
        Error::Fault(_) => false,
    };
    if is_unfit { Cause::Unfit } else { Cause::Heals }
}

/// Whether a request is refused for what it asks, or for its channel, so that the next one is refused too. The others are for
/// the state of the id, and for limits.
fn is_of_arguments(reason: RefuseReason) -> bool {
    match reason {
        RefuseReason::AlreadySent
        | RefuseReason::TooLarge { .. }
        | RefuseReason::NotDatagram
        | RefuseReason::NoDatagrams
        | RefuseReason::NotForDatagrams
        | RefuseReason::NoGroup(_)
        | RefuseReason::NoVendor
        | RefuseReason::NoQp
        | RefuseReason::PrivateDataTooLong { .. }
        | RefuseReason::BadAddress
        | RefuseReason::IsBound
        | RefuseReason::OnLoopback
        | RefuseReason::MappedAddress
        | RefuseReason::NoSuchChannel(_)
        | RefuseReason::ChannelFailed(_) => true,
        RefuseReason::WrongState
        | RefuseReason::DeviceGone
        | RefuseReason::NoDevice
        | RefuseReason::NotConnected
        | RefuseReason::Stalls
        | RefuseReason::Breaks
        | RefuseReason::IsConnected
        | RefuseReason::IsOver
        | RefuseReason::AlreadyMember(_)
        | RefuseReason::NoSuchGroup(_)
        | RefuseReason::HasGroups
        | RefuseReason::NoGroupLeft
        | RefuseReason::HasQp
        | RefuseReason::NumberSent
        | RefuseReason::Busy(_)
        | RefuseReason::AlreadySync
        | RefuseReason::NotSync
        | RefuseReason::SharesChannel
        | RefuseReason::OwesAcks
        | RefuseReason::TooLate
        | RefuseReason::NoChannelLeft
        | RefuseReason::OnListenersChannel => false,
    }
}
