//! Advances an id through its life cycle; random choices alone rarely get far.

use cmid_proto::{ConnParam, IdKey, RejectReason, Request, State, Time};

use super::happening::Happening;
use super::world::World;
use crate::input::Input;
use crate::script;

/// Makes some steps of one id's life cycle, each by the application, the device or the peer.
pub(crate) fn lead(world: &mut World, at: usize, input: &mut Input<'_>) {
    let Some(id) = world.some_id(at, input) else { return };
    let (steps, quiet) = (1 + input.below(8), input.once_in(3));
    for _ in 0..steps {
        one_step(world, at, id, input);
        world.look();
        if !quiet {
            world.read(at);
            world.look();
            if let Some(home) = world.hosts[at].core.channel(id) {
                world.hosts[at].take_event(home);
            }
        }
    }
}

fn one_step(world: &mut World, at: usize, id: IdKey, input: &mut Input<'_>) {
    let host = &world.hosts[at];
    let (Some(state), Some(&no)) = (host.core.state(id), host.device.ids.get(&id)) else { return };
    let deadline = script::deadline(input, host.now);
    let param = ConnParam { qp_num: 7, ..ConnParam::default() };
    let request = match state {
        State::Idle if input.once_in(3) => Request::Bind { addr: script::addr(input) },
        State::Bound if input.once_in(4) => Request::Listen { backlog: 0 },
        State::Idle | State::Bound => Request::ResolveAddr { src: None, dst: script::addr(input) },
        State::AddrResolved => Request::ResolveRoute,
        State::RouteResolved => Request::Connect { param, private_data: b"hello" },
        State::Requested | State::SidrReqReceived if input.once_in(6) => {
            Request::Reject { reason: RejectReason::Consumer, private_data: b"no" }
        }
        State::Requested | State::SidrReqReceived => Request::Accept { param, private_data: b"welcome" },
        State::Responded => Request::Establish,
        State::Connected | State::PeerClosed if input.once_in(3) => Request::Teardown,
        State::Connected if input.once_in(4) => {
            return world.happen_to(no, Happening::PeerDisconnects);
        }
        State::Connected | State::PeerClosed => Request::Disconnect,
        State::Listening if host.core.id_info(id).is_some_and(|it| it.is_sync) && input.once_in(2) => {
            Request::GetRequest
        }
        State::Listening => return world.happen_to(no, Happening::Request),
        State::AddrResolving
        | State::RouteResolving
        | State::Connecting
        | State::Accepting
        | State::Disconnecting
        | State::SidrReqSent => return world.happen_to(no, Happening::Answer),
        State::Closing | State::TimeWait => {
            world.happen_to(no, Happening::Answer);
            return world.happen_to(no, Happening::TimeWaitEnds);
        }
        State::Closed | State::SidrResolved | State::Failed | State::Removed if input.once_in(4) => Request::Destroy,
        State::Closed | State::SidrResolved | State::Failed | State::Removed | State::Destroying => return,
    };
    let due = if input.once_in(3) { deadline } else { Time::NEVER };
    world.hosts[at].submit(&mut world.kernel, id, request, due);
}
