//! The steps that a drive reports to its observer: all inputs of the core, and its results.

use crate::call::{Call, Outcome};
use crate::errno::Errno;
use crate::error::{Error, Fault, Refused};
use crate::event::{Event, RawEvent};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::limits::Limits;
use crate::machine::{Admission, Core};
use crate::request::{Acks, PortSpace, Request};
use crate::time::Time;

/// A step, passed to [`Observer::step`](crate::Observer::step) right after it was made.
#[derive(Debug)]
pub struct StepRecord<'a> {
    /// The time of the drive.
    pub now: Time,
    /// The core after the step.
    pub core: &'a Core,
    /// The step.
    pub step: Step<'a>,
}

/// One call of a method of [`Core`] that changes it, and its result. A core that gets the same steps returns the same
/// results and reaches the same state.
///
/// A call without effect is not reported: a poll that returns `None`, or a timeout when no deadline has passed.
#[derive(Debug)]
pub enum Step<'a> {
    /// [`Core::new`]: the first step.
    Begin {
        /// The limits of the core.
        limits: Limits,
    },
    /// [`Core::open_channel`].
    OpenChannel {
        /// How events of the channel are acked.
        acks: Acks,
        /// The result.
        result: Result<ChannelKey, Refused>,
    },
    /// [`Core::close_channel`].
    CloseChannel {
        /// The channel.
        channel: ChannelKey,
        /// The result.
        result: Result<(), Refused>,
    },
    /// [`Core::create_id`].
    CreateId {
        /// The channel that delivers its events; `None` for synchronous mode.
        channel: Option<ChannelKey>,
        /// Its port space.
        port_space: PortSpace,
        /// The result.
        result: Result<IdKey, Refused>,
    },
    /// [`Core::begin`], at [`StepRecord::now`]. The core has not changed yet, unless the request makes no call.
    Submit {
        /// The id.
        id: IdKey,
        /// The request.
        request: Request<'a>,
        /// The deadline of the request.
        deadline: Time,
        /// The result.
        result: Result<(), Refused>,
    },
    /// [`Core::ack`].
    Ack {
        /// The ack token's [owner](crate::AckToken::owner).
        owner: IdKey,
        /// The ack token's [group](crate::AckToken::group).
        group: Option<GroupKey>,
        /// The result.
        result: Result<(), Refused>,
    },
    /// The next call of the last request, or of [`Core::next`] or [`Core::next_child`]. It has not been made yet.
    Call {
        /// The call.
        call: &'a Call,
        /// The private data of the call.
        private_data: &'a [u8],
    },
    /// [`Begun::end`](crate::Begun::end), for the last [`Step::Call`].
    Outcome {
        /// The call.
        call: &'a Call,
        /// The outcome.
        outcome: Outcome,
        /// The fault that the outcome is, if it is one.
        fault: Option<Fault>,
    },
    /// [`Core::handle_readable`].
    Readable {
        /// The channel.
        channel: ChannelKey,
    },
    /// [`Core::begin_read`].
    BeginRead {
        /// The channel.
        channel: ChannelKey,
        /// The key for a child; `None` if the core takes no event.
        child: Option<IdKey>,
    },
    /// [`Core::take_event`] for the channel `to`, or [`Core::handle_event`].
    Event {
        /// The channel that it was read from.
        channel: ChannelKey,
        /// The event, with at most [`PrivateData::MAX`](crate::PrivateData::MAX) bytes of private data.
        event: RawEvent<&'a [u8]>,
        /// The channel whose next event the application asks for. If this is it, [`Step::Deliver`] follows.
        to: Option<ChannelKey>,
        /// The result.
        result: Result<Admission, Fault>,
        /// Whether a [`Core::handle_readable`] for the same channel follows without a step of its own. False with a
        /// [level-triggered](crate::Poller::is_level_triggered) poller.
        reads_on: bool,
    },
    /// [`Core::next_child`].
    Child {
        /// The id that is to be destroyed.
        id: IdKey,
    },
    /// [`Core::note_iwarp`].
    Iwarp {
        /// The id.
        id: IdKey,
    },
    /// [`Core::pause_channel`].
    PauseChannel {
        /// The channel.
        channel: ChannelKey,
        /// The result.
        result: Result<(), Refused>,
    },
    /// [`Core::resume_channel`].
    ResumeChannel {
        /// The channel.
        channel: ChannelKey,
        /// The result.
        result: Result<(), Refused>,
    },
    /// [`Core::handle_unreadable`], after a failed read.
    Unreadable {
        /// The channel.
        channel: ChannelKey,
        /// The errno of the read.
        errno: Errno,
    },
    /// [`Core::wait_for_room`].
    WaitForRoom {
        /// The channel.
        channel: ChannelKey,
    },
    /// [`Core::handle_timeout`], at [`StepRecord::now`].
    Timeout,
    /// [`Core::poll_event`].
    Deliver {
        /// The channel.
        channel: ChannelKey,
        /// The event as delivered to the application.
        event: &'a Event,
    },
    /// [`Core::release`], and the result of the device.
    Release {
        /// The id.
        id: IdKey,
        /// The number of the release, the same as that of its [`Step::Adopt`]. No other release of the process has it.
        number: u64,
        /// `Ok` if the id is released. After [`Error::Fault`] the id is no longer of this drive, and cannot be adopted.
        result: Result<(), Error>,
    },
    /// [`Core::adopt`], and the outcome of the device. If the device failed, a [`Core::release`] of the id follows
    /// without a step of its own. An adoption that the core refuses is not reported.
    Adopt {
        /// The id's new key.
        id: IdKey,
        /// The number of the [`Step::Release`].
        number: u64,
        /// The key of its channel.
        channel: ChannelKey,
        /// The outcome of the device.
        outcome: Outcome,
    },
    /// The end of a turn; the application runs next.
    Yield,
    /// The end of the drive and of all its ids and channels.
    End,
}
