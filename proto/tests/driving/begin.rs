//! A request of a core, to be begun again with the same outcomes.

use cmid_proto::{Acks, ChannelKey, Core, Flow, IdKey, Outcome, PortSpace, Progress, Request, Time};

/// A request.
#[derive(Debug)]
pub(crate) enum Start {
    OpenChannel(Acks),
    CloseChannel(ChannelKey),
    Create(Option<ChannelKey>, PortSpace),
    Request(Time, IdKey, Request<'static>, Time),
    Following,
    Child,
}

impl Start {
    /// Begins it, and makes the first calls with these outcomes.
    pub(crate) fn after<'c>(&'c self, core: &'c mut Core, outcomes: &[Outcome]) -> Flow<'c, 'c> {
        let following = |begun: Option<_>| begun.map_or(Flow::Done(Ok(Progress::Done)), Flow::Next);
        let mut flow = match *self {
            Start::OpenChannel(acks) => Flow::Next(core.open_channel(acks).unwrap().1),
            Start::CloseChannel(channel) => Flow::Next(core.close_channel(channel).unwrap()),
            Start::Create(on, space) => Flow::Next(core.create_id(on, space).unwrap().1),
            Start::Request(now, id, ref request, deadline) => {
                Flow::Next(core.begin(now, id, request, deadline).unwrap())
            }
            Start::Following => following(core.next()),
            Start::Child => following(core.next_child()),
        };
        for &outcome in outcomes {
            let Flow::Next(begun) = flow else { panic!("more outcomes than calls") };
            flow = begun.end(outcome);
        }
        flow
    }
}

/// The request with private data of its own. It lives as long as the test.
pub(crate) fn owned(request: Request<'_>) -> Request<'static> {
    let keep = |data: &[u8]| &*Box::leak(data.to_vec().into_boxed_slice());
    match request {
        Request::Bind { addr } => Request::Bind { addr },
        Request::ResolveAddr { src, dst } => Request::ResolveAddr { src, dst },
        Request::ResolveRoute => Request::ResolveRoute,
        Request::Listen { backlog } => Request::Listen { backlog },
        Request::AttachQp => Request::AttachQp,
        Request::DetachQp => Request::DetachQp,
        Request::Connect { param, private_data } => Request::Connect { param, private_data: keep(private_data) },
        Request::Accept { param, private_data } => Request::Accept { param, private_data: keep(private_data) },
        Request::Reject { reason, private_data } => Request::Reject { reason, private_data: keep(private_data) },
        Request::Establish => Request::Establish,
        Request::Disconnect => Request::Disconnect,
        Request::Teardown => Request::Teardown,
        Request::Notify => Request::Notify,
        Request::GetRequest => Request::GetRequest,
        Request::Join { addr, send_only } => Request::Join { addr, send_only },
        Request::Leave { group } => Request::Leave { group },
        Request::SetOption { option } => Request::SetOption { option },
        Request::SetEce { ece } => Request::SetEce { ece },
        Request::Migrate { to } => Request::Migrate { to },
        Request::Destroy => Request::Destroy,
        Request::DestroyNow => Request::DestroyNow,
    }
}
