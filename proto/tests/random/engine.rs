//! The engine of a program: a drive, or a core alone under a driver that makes its steps in any legal order.

use cmid_proto::{AckError, AckToken, Acks, ChannelKey, Core, Error, Event, Fault, IdKey, PortSpace, Request, Time};

/// One side of the network.
pub(crate) trait Engine {
    fn core(&self) -> &Core;
    fn open_channel(&mut self, acks: Acks) -> Result<ChannelKey, Error>;
    fn close_channel(&mut self, channel: ChannelKey) -> Result<(), Error>;
    fn create_id(&mut self, on: Option<ChannelKey>, port_space: PortSpace) -> Result<IdKey, Error>;
    /// Returns whether the request has already ended.
    fn request(&mut self, id: IdKey, request: Request<'_>, deadline: Time) -> Result<bool, Error>;
    fn next_event(&mut self, on: ChannelKey) -> Option<Event>;
    /// The next fault of the device.
    fn next_fault(&mut self) -> Option<Fault>;
    fn ack(&mut self, ack_token: AckToken) -> Result<(), AckError>;
    /// Makes a few steps of the loop, with these channels readable. Returns the event of the last one, if it was taken,
    /// and the channel that it is delivered on.
    fn work(&mut self, now: Time, readable: &[ChannelKey], rng: &mut fastrand::Rng) -> Option<(ChannelKey, Event)>;
    /// Whether there is work that needs no waiting.
    fn has_work(&self) -> bool;
    /// Releases an id and adopts it under a new key. `None` if the release is refused.
    fn rename(&mut self, id: IdKey) -> Option<IdKey>;
}
