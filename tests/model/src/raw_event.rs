//! Converts bytes to an event, for an id in any state.
//!
//! An admitted event is delivered unchanged, with its private data truncated to the maximum of all transports. An
//! event that is not admitted changes only a counter. Unknown codes are kept. Nothing panics, including formatting.

use cmid_proto::datapath::{AhAttr, GlobalRoute};
use cmid_proto::{
    Acks, Admission, ChannelKey, CmEvent, ConnParam, Core, Datagram, Event, GroupKey, IdKey, Limits, PortSpace,
    PrivateData, RawEvent, ReceivedParam, Request, State, Time,
};

use crate::input::Input;
use crate::well::{follow_well, well};
use crate::{script, taken};

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(mut world) = World::new(&mut input) else { return };
    while !input.is_over() {
        if input.once_in(3) {
            world.request(&mut input);
        } else {
            let filling = filling(&mut input);
            world.deliver(&mut input, &filling);
        }
        world.core.check();
    }
}

struct World {
    core: Core,
    channel: ChannelKey,
    id: IdKey,
    /// The id and what came of it: children, and the id again under a stale key.
    others: Vec<IdKey>,
}

/// Private data that may exceed the maximum.
fn filling(input: &mut Input<'_>) -> Vec<u8> {
    let len = input.below(256) + input.below(256);
    let seed = input.any::<u8>();
    (0..len).map(|at| (at as u8).wrapping_mul(3) ^ seed).collect()
}

impl World {
    fn new(input: &mut Input<'_>) -> Option<Self> {
        let mut core = Core::new(Limits::SINGLE);
        let (channel, begun) = core.open_channel(Acks::OnDelivery).ok()?;
        well(begun);
        let space = [PortSpace::Tcp, PortSpace::Udp][input.below(2)];
        let (id, begun) = core.create_id(Some(channel), space).ok()?;
        well(begun);
        Some(World { core, channel, id, others: vec![id] })
    }

    /// A request, which the device grants.
    fn request(&mut self, input: &mut Input<'_>) {
        let id = input.pick(&self.others).unwrap_or(self.id);
        let groups: Vec<_> = script::GROUPS.iter().filter_map(|&addr| self.core.group_at(id, addr)).collect();
        let request = script::request(input, &[self.channel], &groups);
        // Where nothing listens all requests of the application are as good as these.
        let request =
            if matches!(request, Request::Destroy | Request::DestroyNow) { Request::ResolveRoute } else { request };
        if let Ok(begun) = self.core.begin(Time(1), id, &request, Time::NEVER) {
            well(begun);
        }
        follow_well(&mut self.core);
    }

    fn deliver(&mut self, input: &mut Input<'_>, filling: &[u8]) {
        let named = input.pick(&self.others).unwrap_or(self.id);
        let Some(on) = self.core.device_channel(named).or(Some(self.channel)) else { return };
        let Some(child) = self.core.wants_event(on) else { return };
        let known = CmEvent::ALL;
        let code = if input.once_in(8) { input.any::<u32>() } else { known[input.below(known.len())].code() };
        let kind = CmEvent::from_code(code);
        assert_eq!(kind.code(), code, "{kind:?}");
        let is_request = kind == CmEvent::ConnectRequest;
        let raw = RawEvent {
            listener: (is_request || input.once_in(8)).then_some(named),
            status: input.any::<i32>(),
            param: ReceivedParam(param(input)),
            datagram: input.once_in(4).then(|| datagram(input)),
            group: self.some_group(named, input),
            private_data: filling,
            ..RawEvent::new(if is_request && !input.once_in(8) { child } else { named }, kind)
        };
        let before = self.core.state(raw.id);
        taken::compare(&self.core, on, raw);
        let admission = self.core.handle_event(on, raw);
        let _ = format!("{raw:?} {kind} {admission:?}");
        follow_well(&mut self.core);
        match admission {
            Ok(Admission::Known) => {
                let home = self.core.channel(raw.id).unwrap_or(on);
                let event = self.core.poll_event(home).or_else(|| self.core.sync_event(raw.id));
                compare(event, &raw);
                stays(kind, before, self.core.state(raw.id));
            }
            Ok(Admission::Child(child)) => {
                assert!(is_request && child == raw.id, "{raw:?} made a child {child}");
                let home = self.core.channel(named).unwrap_or(on);
                compare(self.core.poll_event(home).or_else(|| self.core.sync_event(named)), &raw);
                self.others.push(child);
            }
            Ok(Admission::Late | Admission::Stray) | Err(_) => {
                let after = self.core.state(raw.id);
                assert!(is_request || before == after, "{raw:?} is {admission:?} and led to {after:?}");
                let delivered = self.core.poll_event(on);
                assert_eq!(delivered, None, "{raw:?} is {admission:?}");
            }
        }
    }

    fn some_group(&self, id: IdKey, input: &mut Input<'_>) -> Option<GroupKey> {
        match input.below(4) {
            3 => GroupKey::from_bits(input.any()),
            at => self.core.group_at(id, script::GROUPS[at]),
        }
    }
}

/// Checks that the delivered event equals the raw event.
fn compare(event: Option<Event>, raw: &RawEvent<&[u8]>) {
    let Some(event) = event else { panic!("{raw:?} was admitted and not delivered") };
    let of_group = matches!(raw.kind, CmEvent::MulticastJoin | CmEvent::MulticastError);
    let is_request = raw.kind == CmEvent::ConnectRequest;
    assert_eq!((event.id, event.cm(), event.status), (raw.id, Some(raw.kind), raw.status));
    assert_eq!((event.param, event.datagram), (raw.param, raw.datagram), "{raw:?}");
    assert_eq!(event.group, raw.group.filter(|_| of_group), "{raw:?}");
    assert_eq!(event.listener, raw.listener.filter(|_| is_request), "{raw:?}");
    let fits = raw.private_data.len().min(PrivateData::MAX);
    assert_eq!(*event.private_data, raw.private_data[..fits], "{raw:?}");
    let _ = (format!("{event:?}"), event.result());
}

/// Checks that events other than steps of a connection do not change the state of an id.
fn stays(kind: CmEvent, before: Option<State>, after: Option<State>) {
    match kind {
        CmEvent::AddrChange
        | CmEvent::AddrinfoResolved
        | CmEvent::AddrinfoError
        | CmEvent::User
        | CmEvent::Internal
        | CmEvent::MulticastJoin
        | CmEvent::MulticastError
        | CmEvent::Unknown(_) => assert_eq!(before, after, "{kind}"),
        CmEvent::AddrResolved
        | CmEvent::AddrError
        | CmEvent::RouteResolved
        | CmEvent::RouteError
        | CmEvent::ConnectRequest
        | CmEvent::ConnectResponse
        | CmEvent::ConnectError
        | CmEvent::Unreachable
        | CmEvent::Rejected
        | CmEvent::Established
        | CmEvent::Disconnected
        | CmEvent::DeviceRemoval
        | CmEvent::TimewaitExit => {}
    }
}

fn param(input: &mut Input<'_>) -> ConnParam {
    ConnParam {
        responder_resources: input.any(),
        initiator_depth: input.any(),
        flow_control: input.once_in(2),
        retry_count: input.any(),
        rnr_retry_count: input.any(),
        srq: input.once_in(2),
        qp_num: input.any(),
    }
}

fn datagram(input: &mut Input<'_>) -> Datagram {
    let grh =
        input.once_in(2).then(|| GlobalRoute { dgid: input.any(), flow_label: input.any(), ..Default::default() });
    Datagram { qp_num: input.any(), qkey: input.any(), path: AhAttr { grh, sl: input.any(), ..AhAttr::default() } }
}
