//! The two ways to drive the core: bare, and through the loop that all drivers share.

mod bare;
mod driven;

use cmid_proto::{AckToken, ChannelKey, Core, Event, EventKind, IdKey, Limits, RawEvent, Request, Time};

pub use bare::Bare;
pub use driven::Driven;

/// More than any case needs.
const LIMITS: Limits =
    Limits { ids: 1 << 22, channels: 1 << 22, events: 1 << 22, groups: 16, channel_events: 1 << 22, ..Limits::SINGLE };

/// The steps of the contract, as a driver performs them, without the work of an application or a device. A refusal
/// or an unexpected result panics: a refusal is cheap and must not be measured.
pub trait Level: Sized {
    /// A raw event prepared for the device to report.
    type Arriving;

    /// Its name.
    const NAME: &'static str;

    /// Whether [`receive`](Level::receive) reads an event that the application does not ask for. Without it, the events of a
    /// migration stay in the device.
    const READS_AHEAD: bool;

    /// Makes a level without ids and channels.
    fn new() -> Self;

    /// Sets whether the poller is edge-triggered, if there is one.
    fn set_edge_triggered(&mut self, is_edge: bool);

    /// The core.
    fn core(&self) -> &Core;

    /// How many calls have been made.
    fn made(&self) -> u64;

    /// Opens a channel with explicit acks.
    fn open(&mut self) -> ChannelKey;

    /// Creates an id.
    fn create(&mut self, on: ChannelKey) -> IdKey;

    /// Makes a request and its call, which must succeed.
    fn request(&mut self, id: IdKey, request: Request<'static>, deadline: Time);

    /// Migrates an id to another channel, which is then read and empty.
    fn migrate(&mut self, id: IdKey, to: ChannelKey);

    /// Prepares an event for the next `receive` or `deliver`.
    fn prepare_event(&mut self, raw: RawEvent<&'static [u8]>) -> Self::Arriving;

    /// Reads the event, which stays undelivered.
    fn receive(&mut self, device_channel: ChannelKey, raw: Self::Arriving);

    /// Makes the calls that follow from earlier steps.
    fn run_turns(&mut self);

    /// Takes an event from the channel.
    fn take(&mut self, channel: ChannelKey) -> Option<Event>;

    /// Acks an event.
    fn ack(&mut self, ack_token: AckToken);

    /// Takes an event, which must exist, and acks it.
    fn take_and_ack(&mut self, channel: ChannelKey) -> EventKind;

    /// Reads an event, takes it and acks it.
    #[inline(always)]
    fn deliver(&mut self, device_channel: ChannelKey, channel: ChannelKey, raw: Self::Arriving) -> EventKind {
        self.receive(device_channel, raw);
        self.take_and_ack(channel)
    }

    /// Polls every queue of a driver once. Returns whether one was not empty.
    fn look(&mut self, on: ChannelKey) -> bool;

    /// The core's current time.
    fn now(&self) -> Time;

    /// Sets the time.
    fn pass(&mut self, now: Time);
}
