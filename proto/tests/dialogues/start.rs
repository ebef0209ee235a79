//! What an application can ask of a core, and what follows, each up to its first call.

use cmid_proto::{Acks, Begun, ChannelKey, Core, Flow, IdKey, Outcome, PortSpace, Refused, Request, Time};

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

    /// Begins it, and makes the first calls with these outcomes.
    pub(crate) fn after<'c, 's>(&'s self, core: &'c mut Core, now: Time, outcomes: &[Outcome]) -> Flow<'c, 's> {
        let mut flow = Flow::Next(self.begin(core, now).unwrap().expect("it is due"));
        for &outcome in outcomes {
            let Flow::Next(begun) = flow else { panic!("more outcomes than calls") };
            flow = begun.end(outcome);
        }
        flow
    }
}
