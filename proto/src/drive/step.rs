//! What a drive tells a device that listens: all that goes into the core, and what comes out.

use core::net::SocketAddr;

use crate::call::{Call, Outcome};
use crate::errno::Errno;
use crate::error::{Error, Fault, Refused};
use crate::event::{Event, RawEvent};
use crate::key::{ChannelKey, GroupKey, IdKey};
use crate::limits::Limits;
use crate::machine::{Admission, Core};
use crate::request::{Acks, PortSpace, Request};
use crate::time::Time;

/// A step, as [`Device::observe`](crate::Device::observe) is told of it right after it was taken.
#[derive(Debug)]
pub struct StepRecord<'a> {
    /// The time as the drive was last told.
    pub now: Time,
    /// The core after the step.
    pub core: &'a Core,
    /// What was done.
    pub step: Step<'a>,
}

/// One call of a method of [`Core`] that changes it, and what it answered. A core that is given the same
/// steps gives the same answers and comes to the same state.
///
/// What finds nothing (a poll that says `None`, a time-out when no deadline has passed) changes nothing and is not told.
#[derive(Debug)]
pub enum Step<'a> {
    /// [`Core::new`]: the first step.
    Begin {
        /// What the core may hold.
        limits: Limits,
    },
    /// [`Core::open_channel`].
    OpenChannel {
        /// Who says that an event has been dealt with.
        acks: Acks,
        /// The answer.
        result: Result<ChannelKey, Refused>,
    },
    /// [`Core::close_channel`].
    CloseChannel {
        /// Which.
        channel: ChannelKey,
        /// The answer.
        result: Result<(), Refused>,
    },
    /// [`Core::create_id`].
    CreateId {
        /// Where its events are to go.
        channel: Option<ChannelKey>,
        /// Its port space.
        port_space: PortSpace,
        /// The answer.
        result: Result<IdKey, Refused>,
    },
    /// [`Core::submit`], at [`StepRecord::now`].
    Submit {
        /// On which id.
        id: IdKey,
        /// What was asked.
        request: Request<'a>,
        /// When it is to end.
        deadline: Time,
        /// The answer.
        result: Result<(), Refused>,
    },
    /// [`Core::join`], at [`StepRecord::now`].
    Join {
        /// Which id.
        id: IdKey,
        /// The group's address.
        addr: SocketAddr,
        /// Only to send.
        send_only: bool,
        /// When it is to end.
        deadline: Time,
        /// The answer.
        result: Result<GroupKey, Refused>,
    },
    /// [`Core::ack`].
    Ack {
        /// The ack token's [owner](crate::AckToken::owner).
        owner: IdKey,
        /// The ack token's [group](crate::AckToken::group).
        group: Option<GroupKey>,
        /// The answer.
        result: Result<(), Refused>,
    },
    /// [`Core::poll_call`]. The call has not been made yet.
    Call {
        /// What is to be done.
        call: &'a Call,
        /// What goes with it.
        private_data: &'a [u8],
    },
    /// [`Core::handle_outcome`], of the call that was told last.
    Outcome {
        /// The call.
        call: &'a Call,
        /// What it returned.
        outcome: Outcome,
        /// What the core takes for a fault.
        fault: Option<Fault>,
    },
    /// [`Core::handle_readable`].
    Readable {
        /// Which channel.
        channel: ChannelKey,
    },
    /// [`Core::poll_readable`], and [`Core::wants_event`] for the channel that it named.
    Look {
        /// Which channel.
        channel: ChannelKey,
        /// The key for a child; `None` if no event is wanted.
        child: Option<IdKey>,
    },
    /// [`Core::handle_event`].
    Event {
        /// The channel that it was read from.
        channel: ChannelKey,
        /// What was read; of private data at most [`PRIVATE_DATA_MAX`](crate::PRIVATE_DATA_MAX) bytes.
        event: RawEvent<&'a [u8]>,
        /// The answer.
        result: Result<Admission, Fault>,
        /// Whether [`Core::handle_readable`] for the same channel follows, which is no step of its own: the channel is read
        /// on. Not where what is left makes it [readable again](crate::Device::LEVEL_TRIGGERED).
        reads_on: bool,
    },
    /// [`Core::poll_child`].
    Child {
        /// The id that gets its turn.
        id: IdKey,
    },
    /// [`Core::pause_channel`].
    PauseChannel {
        /// Which channel.
        channel: ChannelKey,
        /// The answer.
        result: Result<(), Refused>,
    },
    /// [`Core::resume_channel`].
    ResumeChannel {
        /// Which channel.
        channel: ChannelKey,
        /// The answer.
        result: Result<(), Refused>,
    },
    /// Reading a channel failed: [`Core::handle_unreadable`].
    Unreadable {
        /// Which channel.
        channel: ChannelKey,
        /// Why.
        errno: Errno,
    },
    /// [`Core::wait_for_room`].
    WaitForRoom {
        /// Which channel.
        channel: ChannelKey,
    },
    /// [`Core::handle_timeout`], at [`StepRecord::now`].
    Timeout,
    /// [`Core::poll_event`].
    Deliver {
        /// Of which channel.
        channel: ChannelKey,
        /// What the application sees.
        event: &'a Event,
    },
    /// [`Core::release`], and what the device said to it.
    Release {
        /// Which id.
        id: IdKey,
        /// Whether it is out of this drive; after [`Error::Fault`] it is, and is lost.
        result: Result<(), Error>,
    },
    /// [`Core::adopt`], and what the device said to it. The core is told next to release it where the device failed. One that
    /// the core refused is not told.
    Adopt {
        /// The id's new key.
        id: IdKey,
        /// Its channel's.
        channel: ChannelKey,
        /// What the device said.
        outcome: Outcome,
    },
    /// A turn is over, and the application has its turn.
    Yield,
    /// The drive goes, with all that it has.
    End,
}
