//! What a program runs on: a drive, or a core by itself under a driver that takes its steps in any legal order.

use cmid_proto::{AckError, AckToken, Acks, ChannelKey, Core, Error, Event, Fault, IdKey, PortSpace, Request, Time};

/// One side of the network.
pub(crate) trait Engine {
    /// Whether the ends of requests are to be counted: they are not returned by [`request`](Engine::request).
    const COUNTS_ENDS: bool;
    fn core(&self) -> &Core;
    /// The ids of the requests that have ended by the outcome of a call since the last time.
    fn take_ends(&mut self) -> Vec<IdKey>;
    fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error>;
    fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error>;
    fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error>;
    /// On success: whether the request has ended already.
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<bool, Error>;
    fn next_event(&mut self, on: ChannelKey) -> Option<Event>;
    /// What the device did wrong.
    fn next_fault(&mut self) -> Option<Fault>;
    fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError>;
    /// A few steps of the loop, with these channels readable.
    fn work(&mut self, now: Time, readable: &[ChannelKey], rng: &mut fastrand::Rng);
    /// Whether something is left to be done without waiting.
    fn has_work(&self) -> bool;
    /// Takes an id out and in again, under a new key. `None`: it is refused.
    fn rename(&mut self, id: IdKey) -> Option<IdKey>;
}
