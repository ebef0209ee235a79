//! The two ways to drive the core: bare, and through the loop that all drivers share.

mod bare;
mod driven;

use cmid_proto::{AckToken, ChannelKey, Core, Event, EventKind, IdKey, Limits, RawEvent, Request, Time};

pub use bare::Bare;
pub use driven::Driven;

/// More than any case needs.
const LIMITS: Limits =
    Limits { ids: 1 << 22, channels: 1 << 22, events: 1 << 22, groups: 16, channel_events: 1 << 22, ..Limits::SINGLE };

/// The steps of the contract, as a driver takes them. What an application or a device would do is left out. Whatever is
/// refused, or does not come out as it should, ends the program: a refusal is cheap and must not be measured.
pub trait Level: Sized {
    /// A raw event on its way to where the device reports it.
    type Arriving;

    /// Its name.
    const NAME: &'static str;

    /// Nothing yet.
    fn new() -> Self;

    /// The core.
    fn core(&self) -> &Core;

    /// How many calls have been made.
    fn made(&self) -> u64;

    /// A channel with explicit acks.
    fn open(&mut self) -> ChannelKey;

    /// A new id.
    fn create(&mut self, on: ChannelKey) -> IdKey;

    /// A request, its call, and what it returns: success.
    fn ask(&mut self, id: IdKey, request: Request<'static>, deadline: Time);

    /// The same in steps, as for a device that observes each. `Drive` has them only for such a device.
    fn ask_in_steps(&mut self, id: IdKey, request: Request<'static>, deadline: Time) {
        self.ask(id, request, deadline);
    }

    /// To another channel, which is then read: there is nothing.
    fn migrate(&mut self, id: IdKey, to: ChannelKey);

    /// The device has something to report: it is where the next `receive` or `tell` finds it.
    fn arrive(&mut self, raw: RawEvent<&'static [u8]>) -> Self::Arriving;

    /// It is read, and stays undelivered.
    fn receive(&mut self, device_channel: ChannelKey, raw: Self::Arriving);

    /// The calls that nobody asked for are made.
    fn run_turns(&mut self);

    /// The application takes an event.
    fn take(&mut self, channel: ChannelKey) -> Option<Event>;

    /// It is done with it.
    fn ack(&mut self, ack_token: AckToken);

    /// The application takes an event, which must be there, and acks it.
    fn take_and_ack(&mut self, channel: ChannelKey) -> EventKind;

    /// In, out, ack.
    #[inline(always)]
    fn tell(&mut self, device_channel: ChannelKey, channel: ChannelKey, raw: Self::Arriving) -> EventKind {
        self.receive(device_channel, raw);
        self.take_and_ack(channel)
    }

    /// Everything that a driver polls is polled once. Whether there was something.
    fn look(&mut self, on: ChannelKey) -> bool;

    /// The time as last told.
    fn now(&self) -> Time;

    /// Time passes.
    fn pass(&mut self, now: Time);
}
