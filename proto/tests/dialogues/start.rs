//! What an application can ask of a core, and what follows, each up to its first call.

use cmid_proto::{Acks, Begun, ChannelKey, Core, IdKey, PortSpace, Refused, Request, Time};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    OpenChannel(Acks),
    CloseChannel(ChannelKey),
    Create(Option<ChannelKey>, PortSpace),
    Request(IdKey, Request<'static>, Time),
    /// The next call that follows from earlier steps.
    Following,
    /// The next child of a listener that is destroyed.
    Child,
}

impl Start {
    /// `None` if nothing follows.
    pub(crate) fn begin<'c, 's>(&'s self, core: &'c mut Core, now: Time) -> Result<Option<Begun<'c, 's>>, Refused> {
        Ok(match *self {
            Start::OpenChannel(acks) => Some(core.open_channel(acks)?.1),
            Start::CloseChannel(channel) => Some(core.close_channel(channel)?),
            Start::Create(on, space) => Some(core.create_id(on, space)?.1),
            Start::Request(id, ref request, deadline) => Some(core.begin(now, id, request, deadline)?),
            Start::Following => core.next(),
            Start::Child => core.next_child(),
        })
    }
}
