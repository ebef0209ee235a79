//! Compares the short path of a connection request with its long path, also after each request before its delivery.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Core;
use crate::cm_event::CmEvent;
use crate::event::{ConnParam, RawEvent};
use crate::id::{Id, PendingCall, PendingMigrate, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::request::{Acks, PortSpace, RejectReason, Request};
use crate::state::State;
use crate::time::Time;

const NOW: Time = Time(1000);
const DUE: Time = Time(5000);
const BACKLOG: i32 = 3;

/// A listener. Its events are delivered on `on`; the device reports them on `device_channel`. Another id is on `on`
/// too.
struct Listening {
    core: Core,
    on: ChannelKey,
    to: ChannelKey,
    device_channel: ChannelKey,
    listener: IdKey,
    other: IdKey,
}

impl Listening {
    fn new(space: PortSpace, acks: Acks) -> Self {
        let mut core = Core::new(Limits::LARGE);
        let [on, to] = [acks, Acks::Explicit].map(|acks| {
            let channel = core.open_channel(acks).unwrap();
            finish(&mut core);
            channel
        });
        let [listener, other] = [(); 2].map(|()| {
            let id = core.create_id(Some(on), space).unwrap();
            finish(&mut core);
            id
        });
        core.submit(NOW, listener, Request::Listen { backlog: BACKLOG }, Time::NEVER).unwrap();
        finish(&mut core);
        while core.poll_readable().is_some() {}
        let device_channel = core.device_channel(listener).unwrap();
        Listening { core, on, to, device_channel, listener, other }
    }

    fn every() -> impl Iterator<Item = Self> {
        [PortSpace::Tcp, PortSpace::Udp]
            .into_iter()
            .flat_map(|space| [Acks::Explicit, Acks::OnDelivery].map(|acks| Listening::new(space, acks)))
    }

    fn request(&self) -> RawEvent<&'static [u8]> {
        let child = self.core.ids.next_key().unwrap();
        RawEvent {
            listener: Some(self.listener),
            private_data: &[7; 56],
            ..RawEvent::new(child, CmEvent::ConnectRequest)
        }
    }

    /// Whether the request has a short path; compares both.
    fn compare(&self, raw: &RawEvent<&[u8]>) -> bool {
        self.core.compare_event(self.device_channel, raw)
    }

    /// The cores after a request on the short path and on the long one, and the key of its id.
    fn both(&self) -> ([Core; 2], IdKey) {
        let (mut short, mut long, raw) = (self.core.clone(), self.core.clone(), self.request());
        assert!(short.admit_request_short(self.device_channel, raw.id, &raw));
        long.take_any_event(self.device_channel, &raw).unwrap();
        assert!(short.single.is_some() && long.single.is_none());
        short.check();
        ([short, long], raw.id)
    }
}

/// Makes all calls; they succeed.
fn finish(core: &mut Core) {
    while let Some((token, _)) = core.poll_call() {
        core.take_outcome(token, Ok(())).unwrap();
    }
}

fn peer() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

#[test]
fn a_request_in_and_out() {
    for listening in Listening::every() {
        let raw = listening.request();
        assert!(listening.compare(&raw));
        assert!(listening.compare(&RawEvent { private_data: &[0], status: -1, ..raw }));
        assert!(!listening.compare(&RawEvent { private_data: &[], ..raw }), "librdmacm's requests have private data");
        assert!(listening.core.compare_read(listening.device_channel, Ok(Some(raw))));
    }
}

#[test]
fn requests_up_to_the_backlog() {
    for mut listening in Listening::every() {
        for untaken in 0..BACKLOG {
            let raw = listening.request();
            assert_eq!(listening.compare(&raw), untaken == 0, "{untaken} are untaken");
            assert!(listening.core.compare_read(listening.device_channel, Ok(Some(raw))), "{untaken} are untaken");
            listening.core.handle_event(listening.device_channel, raw).unwrap();
            listening.core.check();
        }
        let one_more = listening.request();
        assert!(!listening.compare(&one_more));
        assert!(!listening.core.compare_read(listening.device_channel, Ok(Some(one_more))));
        assert!(listening.core.handle_event(listening.device_channel, one_more).is_err());
        let taken = core::iter::from_fn(|| listening.core.poll_event(listening.on)).count();
        assert_eq!(taken, usize::try_from(BACKLOG).unwrap());
        assert!(listening.compare(&listening.request()));
    }
}

#[test]
fn an_event_that_is_no_request_of_this_listener_has_no_short_path() {
    let listening = Listening::new(PortSpace::Tcp, Acks::Explicit);
    let raw = listening.request();
    for wrong in [
        RawEvent { listener: None, ..raw },
        RawEvent { listener: Some(listening.other), ..raw },
        RawEvent { id: listening.listener, ..raw },
        RawEvent { kind: CmEvent::ConnectResponse, ..raw },
    ] {
        assert!(!listening.compare(&wrong), "{wrong:?}");
    }
    assert!(!listening.core.compare_event(listening.on, &raw), "on another channel");
}

/// The name of a property that excludes the short path, and a function that gives it to the listener.
type Unusual = (&'static str, fn(&mut Id, ChannelKey));

#[test]
fn a_listener_for_which_something_is_under_way_has_no_short_path() {
    let unusual: [Unusual; 9] = [
        ("synchronous", |id, _| id.sync = true),
        ("a call under way", |id, _| id.pending_call = PendingCall::Answer),
        ("moving", |id, to| id.pending_call = PendingCall::Migrate { to, by_event: false, arrived: false }),
        ("an ended request", |id, _| id.sync_state = SyncState::Without { timed_out: false }),
        ("a migration that waits", |id, to| id.pending_migrate = Some(PendingMigrate { to: Some(to) })),
        ("waived acks", |id, _| id.waived = true),
        ("an overtaken call", |id, _| id.orphaned = true),
        ("not on its channel", |id, to| id.device_channel = to),
        ("removed", |id, _| id.state = State::Removed),
    ];
    for (name, make) in unusual {
        let mut listening = Listening::new(PortSpace::Tcp, Acks::Explicit);
        let raw = listening.request();
        make(listening.core.ids.get_mut(listening.listener).unwrap(), listening.to);
        let mut same = listening.core.clone();
        assert!(!same.admit_request_short(listening.device_channel, raw.id, &raw), "{name}");
        assert_eq!(same, listening.core, "{name}");
    }
    let mut listening = Listening::new(PortSpace::Tcp, Acks::Explicit);
    listening.core.channels.get_mut(listening.device_channel).unwrap().paused = true;
    assert!(!listening.compare(&listening.request()), "paused");
}

/// Requests that are possible while the connection request is undelivered.
fn requests(to: ChannelKey) -> Vec<Request<'static>> {
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    alloc::vec![
        Request::Accept { param, private_data: &[3; 40] },
        Request::Reject { reason: RejectReason::Consumer, private_data: &[] },
        Request::Migrate { to: Some(to) },
        Request::Migrate { to: None },
        Request::Destroy,
        Request::DestroyNow,
        Request::Listen { backlog: 1 },
        Request::ResolveAddr { src: None, dst: peer() },
        Request::Disconnect,
    ]
}

#[test]
fn requests_while_the_request_is_undelivered() {
    for listening in Listening::every() {
        for request in requests(listening.to) {
            let (cores, child) = listening.both();
            for target in [child, listening.listener, listening.other] {
                cores[0].compare_request(NOW, target, &request, DUE);
                let done = cores.clone().map(|mut core| {
                    let submitted = core.submit(NOW, target, request, DUE);
                    core.check();
                    finish(&mut core);
                    core.check();
                    let events = [listening.on, listening.to, listening.device_channel]
                        .map(|channel| core::iter::from_fn(|| core.poll_event(channel)).collect::<Vec<_>>());
                    core.check();
                    (submitted, events, core)
                });
                assert_eq!(done[0], done[1], "{request:?} on {target}");
            }
        }
    }
}

#[test]
fn a_request_performed_at_once_while_the_request_is_undelivered() {
    for listening in Listening::every() {
        for request in requests(listening.to) {
            let (cores, child) = listening.both();
            for target in [child, listening.listener, listening.other] {
                let done = cores.clone().map(|mut core| {
                    if core.perform(NOW, target, &request, DUE, |_, _| Ok(())).is_none() {
                        let _refused = core.submit(NOW, target, request, DUE);
                        finish(&mut core);
                    }
                    core.check();
                    let events = [listening.on, listening.to, listening.device_channel]
                        .map(|channel| core::iter::from_fn(|| core.poll_event(channel)).collect::<Vec<_>>());
                    (events, core)
                });
                assert_eq!(done[0], done[1], "{request:?} on {target}");
            }
        }
    }
}

#[test]
fn events_while_the_request_is_undelivered() {
    for listening in Listening::every() {
        let (cores, child) = listening.both();
        for (on, id) in [
            (listening.device_channel, listening.listener),
            (listening.device_channel, child),
            (listening.on, listening.other),
        ] {
            for kind in CmEvent::ALL.iter().copied() {
                let done = cores.clone().map(|mut core| {
                    let admitted = core.handle_event(on, RawEvent::new(id, kind));
                    core.check();
                    let events: Vec<_> = core::iter::from_fn(|| core.poll_event(listening.on)).collect();
                    (admitted, events, core)
                });
                assert_eq!(done[0], done[1], "{kind} of {id}");
            }
        }
    }
}
