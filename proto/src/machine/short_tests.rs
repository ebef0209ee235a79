//! Compares each short path with its long path: on every cell, and on ids that have no short path.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Admission, Core};
use crate::cm_event::CmEvent;
use crate::errno::Errno;
use crate::event::{AckToken, ConnParam, Ece, RawEvent};
use crate::id::{Id, PendingCall, PendingMigrate, SyncState};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::plain;
use crate::request::{Acks, CmOption, PortSpace, RejectReason, Request};
use crate::request_kind::RequestKind;
use crate::state::State;
use crate::table::{self, EventColumn};
use crate::time::Time;

pub(super) const NOW: Time = Time(1000);
pub(super) const DUE: Time = Time(5000);
pub(super) const LATER: Time = Time(9000);

/// A core with two channels. On the first one is an id in a chosen state. Another id has a deadline after `DUE`.
pub(super) struct ShortFixture {
    pub(super) core: Core,
    pub(super) on: ChannelKey,
    to: ChannelKey,
    pub(super) id: IdKey,
}

impl ShortFixture {
    pub(super) fn new(acks: Acks) -> Self {
        let mut core = Core::new(Limits::LARGE);
        let [on, to] = [acks, Acks::Explicit].map(|acks| {
            let channel = core.open_channel(acks).unwrap();
            finish(&mut core);
            channel
        });
        let [id, other] = [(); 2].map(|()| {
            let id = core.create_id(Some(on), PortSpace::Tcp).unwrap();
            finish(&mut core);
            id
        });
        let resolve = Request::ResolveAddr { src: None, dst: peer() };
        core.submit(NOW, other, resolve, LATER).unwrap();
        finish(&mut core);
        ShortFixture { core, on, to, id }
    }

    /// Puts the id in this state, with a deadline if the state waits for an event.
    pub(super) fn in_state(state: State, port_space: PortSpace, acks: Acks) -> Self {
        let mut fixture = ShortFixture::new(acks);
        let id = fixture.core.ids.get_mut(fixture.id).unwrap();
        (id.state, id.port_space) = (state, port_space);
        // An ack that was owed before must not count for the next event.
        id.owed = 1;
        if table::operation(state).is_some() {
            fixture.core.set_deadline(fixture.id, DUE);
        }
        fixture
    }

    fn every_state() -> impl Iterator<Item = (State, PortSpace, Acks)> {
        State::ALL.into_iter().flat_map(|state| {
            [PortSpace::Tcp, PortSpace::Udp]
                .into_iter()
                .flat_map(move |space| [Acks::Explicit, Acks::OnDelivery].map(|acks| (state, space, acks)))
        })
    }
}

/// Makes all calls; they succeed.
pub(super) fn finish(core: &mut Core) {
    while let Some((token, _)) = core.poll_call() {
        core.take_outcome(token, Ok(())).unwrap();
    }
}

pub(super) fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7471)
}

/// Returns every known event type and an unknown one.
fn every_event() -> impl Iterator<Item = CmEvent> {
    CmEvent::ALL.iter().copied().chain([CmEvent::Unknown(99)])
}

#[test]
fn an_event_in_and_out() {
    let mut short = 0;
    for (state, space, acks) in ShortFixture::every_state() {
        for (kind, private_data) in every_event().flat_map(|kind| [(kind, &[][..]), (kind, &[7; 56][..])]) {
            let fixture = ShortFixture::in_state(state, space, acks);
            let raw = RawEvent { status: -1, private_data, ..RawEvent::new(fixture.id, kind) };
            // A read on this channel is short, whatever the event.
            assert!(fixture.core.compare_read(fixture.on, Ok(Some(raw))), "{kind} while {state}");
            let is_short = fixture.core.compare_event(fixture.on, &raw);
            assert_eq!(is_short, plain::event(state, EventColumn::of(kind)).is_some(), "{kind} while {state}");
            short += usize::from(is_short);
        }
    }
    assert!(short > 800, "{short} of them");
}

/// An allowed `AttachQp` or `DetachQp` makes no call and changes only `has_qp`.
#[test]
fn a_qp() {
    let mut allowed = 0;
    for (state, space, acks) in ShortFixture::every_state() {
        for (had_qp, request) in [(false, Request::AttachQp), (true, Request::DetachQp)] {
            let ShortFixture { mut core, id, .. } = ShortFixture::in_state(state, space, acks);
            let it = core.ids.get_mut(id).unwrap();
            (it.on_device, it.has_qp) = (crate::on_device::OnDevice::YES, had_qp);
            let mut short = core.clone();
            if core.submit(NOW, id, request, Time::NEVER).is_ok() {
                short.note_qp(id, !had_qp);
                assert!(short == core && core.ids.get(id).unwrap().has_qp != had_qp, "{request:?} while {state}");
                allowed += 1;
            }
        }
    }
    assert!(allowed > 20, "{allowed} of them");
}

#[test]
fn an_ack() {
    for (state, space, _) in ShortFixture::every_state() {
        let mut fixture = ShortFixture::in_state(state, space, Acks::Explicit);
        let id = fixture.id;
        let raw = RawEvent::new(id, CmEvent::AddrChange);
        let Ok(Admission::Known) = fixture.core.handle_event(fixture.on, raw) else { continue };
        let ack_token = fixture.core.poll_event(fixture.on).unwrap().ack_token.unwrap();
        let (mut short, mut long) = (fixture.core.clone(), fixture.core.clone());
        let same = AckToken { owner: id, group: None };
        short.ack(ack_token).unwrap();
        long.ids.get_mut(id).unwrap().owed -= 1;
        long.acked(same);
        assert_eq!(short, long, "{state}");
    }
}

/// Returns one request of each kind, and some that a guard refuses.
pub(super) fn requests() -> Vec<Request<'static>> {
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let private_data = &[3; 40][..];
    alloc::vec![
        Request::Bind { addr: peer() },
        Request::Bind { addr: nowhere },
        Request::ResolveAddr { src: None, dst: peer() },
        Request::ResolveAddr { src: Some("[::1]:1".parse().unwrap()), dst: peer() },
        Request::ResolveRoute,
        Request::Listen { backlog: 3 },
        Request::AttachQp,
        Request::DetachQp,
        Request::Connect { param, private_data },
        Request::Connect { param: ConnParam::default(), private_data },
        Request::Connect { param, private_data: &[0; 200] },
        Request::Accept { param, private_data },
        Request::Accept { param: ConnParam::default(), private_data: &[] },
        Request::Reject { reason: RejectReason::Consumer, private_data },
        Request::Establish,
        Request::Disconnect,
        Request::Teardown,
        Request::Notify,
        Request::GetRequest,
        Request::Join { addr: peer(), send_only: false },
        Request::SetOption { option: CmOption::Tos(1) },
        Request::SetOption { option: CmOption::ReuseAddr(true) },
        Request::SetOption { option: CmOption::ReuseAddr(false) },
        Request::SetOption { option: CmOption::AfOnly(true) },
        Request::SetOption { option: CmOption::AckTimeout(9) },
        Request::SetEce { ece: Ece { vendor_id: 5, options: 6 } },
        Request::SetEce { ece: Ece { vendor_id: 0, options: 6 } },
        Request::Destroy,
        Request::DestroyNow,
    ]
}

#[test]
fn a_request_its_call_and_its_outcome() {
    let mut short = 0;
    for (state, space, acks) in ShortFixture::every_state() {
        for request in &requests() {
            let mut fixture = ShortFixture::in_state(state, space, acks);
            // A destruction would wait for this ack.
            fixture.core.ids.get_mut(fixture.id).unwrap().owed = 0;
            short += usize::from(fixture.core.compare_request(NOW, fixture.id, request, DUE));
        }
    }
    assert!(short > 290, "{short} of them");
}

#[test]
fn an_event_between_a_request_and_its_outcome() {
    for (state, space, acks) in ShortFixture::every_state() {
        for request in &requests() {
            let fixture = ShortFixture::in_state(state, space, acks);
            let (mut short, mut long) = (fixture.core.clone(), fixture.core.clone());
            if !short.submit_short(NOW, fixture.id, request, DUE) {
                continue;
            }
            long.submit_any(NOW, fixture.id, request, DUE).unwrap();
            let both = [&mut short, &mut long].map(|core| {
                let (token, _) = core.poll_call().unwrap();
                let admitted = core.handle_event(fixture.on, RawEvent::new(fixture.id, CmEvent::Disconnected));
                (admitted, core.handle_outcome(token, Ok(())))
            });
            assert_eq!(both[0], both[1], "{request:?} while {state}");
            assert_eq!(short, long, "{request:?} while {state}");
        }
    }
}

/// The name of a property that excludes short paths, and a function that gives it to an id.
type Unusual = (&'static str, fn(&mut Id, ChannelKey));

const UNUSUAL: [Unusual; 10] = [
    ("synchronous", |id, _| id.sync = true),
    ("a call under way", |id, _| id.pending_call = PendingCall::Answer),
    ("moving", |id, to| id.pending_call = PendingCall::Migrate { to, by_event: false, arrived: false }),
    ("waiting for an event", |id, _| id.sync_state = SyncState::For(RequestKind::Join)),
    ("an ended request", |id, _| id.sync_state = SyncState::Without { timed_out: false }),
    ("a migration that waits", |id, to| id.pending_migrate = Some(PendingMigrate { to: Some(to) })),
    ("another device channel", |id, to| id.device_channel = to),
    ("waived acks", |id, _| id.waived = true),
    ("an overtaken call", |id, _| id.orphaned = true),
    ("an answer that is due", |id, _| id.answer_due = true),
];

#[test]
fn there_is_no_short_path_for_an_id_that_is_not_plain() {
    for (name, make) in UNUSUAL {
        for state in State::ALL {
            let mut fixture = ShortFixture::in_state(state, PortSpace::Tcp, Acks::Explicit);
            // The id is marked as plain before the change.
            fixture.core.ids.get_untouched(fixture.id).unwrap().is_plain();
            make(fixture.core.ids.get_mut(fixture.id).unwrap(), fixture.to);
            for kind in every_event() {
                let raw = RawEvent::new(fixture.id, kind);
                assert!(!fixture.core.compare_event(fixture.on, &raw), "{name}: {} while {state}", raw.kind);
            }
            let migrate = Request::Migrate { to: Some(fixture.to) };
            for request in requests().iter().chain([&migrate]) {
                let is_short = fixture.core.compare_request(NOW, fixture.id, request, DUE);
                // `short_sync_tests` covers synchronous ids.
                assert!(!is_short || name == "synchronous", "{name}: {request:?} while {state}");
            }
        }
    }
}

#[test]
fn a_migration_or_a_destruction_with_events() {
    for events in 0..5 {
        let mut fixture = ShortFixture::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
        fixture.core.ids.get_mut(fixture.id).unwrap().owed = 0;
        let other = fixture.core.id_keys().find(|&id| id != fixture.id).unwrap();
        // The events: of the id alone; adjacent; with events of another id between them.
        for at in 0..events {
            for target in [fixture.id, other].into_iter().take(1 + at % 2) {
                fixture.core.handle_event(fixture.on, RawEvent::new(target, CmEvent::AddrChange)).unwrap();
            }
        }
        let migrate = Request::Migrate { to: Some(fixture.to) };
        assert!(fixture.core.compare_request(NOW, fixture.id, &migrate, DUE), "{events} events");
        assert_eq!(
            fixture.core.compare_request(NOW, fixture.id, &Request::Destroy, DUE),
            events == 0,
            "{events} events"
        );
        assert_eq!(fixture.core.perform(NOW, fixture.id, &migrate, DUE, |_, _| Ok(())), Some(Ok(())));
        fixture.core.check();
        let moved = core::iter::from_fn(|| fixture.core.poll_event(fixture.to)).count();
        assert_eq!(moved, events);
    }
}

#[test]
fn what_a_migration_or_a_destruction_waits_for_has_no_short_path() {
    let fixture = ShortFixture::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
    assert_eq!(fixture.core.owed(fixture.id), 1);
    for request in [Request::Migrate { to: Some(fixture.to) }, Request::Destroy] {
        assert!(!fixture.core.compare_request(NOW, fixture.id, &request, DUE), "{request:?}");
    }
    let mut sync_state = ShortFixture::in_state(State::Connecting, PortSpace::Tcp, Acks::Explicit);
    sync_state.core.ids.get_mut(sync_state.id).unwrap().owed = 0;
    assert!(!sync_state.core.compare_request(NOW, sync_state.id, &Request::Destroy, DUE), "it has a deadline");
}

#[test]
fn the_single_event_counts_against_the_limit_on_all_events() {
    let mut fixture = ShortFixture::new(Acks::OnDelivery);
    let there = fixture.core.create_id(Some(fixture.to), PortSpace::Tcp).unwrap();
    finish(&mut fixture.core);
    fixture.core.limits.events = 2;
    for (on, id) in [(fixture.to, there), (fixture.to, there), (fixture.on, fixture.id)] {
        fixture.core.handle_event(on, RawEvent::new(id, CmEvent::AddrChange)).unwrap();
        if on == fixture.to && fixture.core.single.is_none() {
            // One of two events is taken: the other one is on the lists.
            assert!(fixture.core.poll_event(on).is_some());
        }
    }
    assert_eq!((fixture.core.single.is_some(), fixture.core.pending.of_device()), (true, 1));
    assert_eq!(fixture.core.wants_event(fixture.to), None);
    fixture.core.link_single();
    assert_eq!(fixture.core.wants_event(fixture.to), None);
    assert!(fixture.core.poll_event(fixture.on).is_some());
    assert!(fixture.core.wants_event(fixture.to).is_some());
}

#[test]
fn a_new_id() {
    for outcome in [Ok(()), Err(Errno::ENODEV)] {
        let fixture = ShortFixture::new(Acks::Explicit);
        let (mut short, mut long) = (fixture.core.clone(), fixture.core);
        let performed = short.perform_create(fixture.on, PortSpace::Udp, |_| outcome).unwrap();
        let id = long.create_id(Some(fixture.on), PortSpace::Udp).unwrap();
        let (token, _) = long.poll_call().unwrap();
        let ended = long.take_outcome(token, outcome).unwrap().unwrap();
        assert_eq!(performed, ended.result.map(|()| id));
        assert_eq!(short, long);
        assert_eq!(short.ids.next_key(), long.ids.next_key());
    }
}

/// Returns a fixture with a taken request as its id, its listener, and the listener's device channel.
fn requested(space: PortSpace, acks: Acks) -> (ShortFixture, IdKey, ChannelKey) {
    let mut fixture = ShortFixture::new(acks);
    let listener = fixture.core.create_id(Some(fixture.on), space).unwrap();
    finish(&mut fixture.core);
    fixture.core.submit(NOW, listener, Request::Listen { backlog: 3 }, Time::NEVER).unwrap();
    finish(&mut fixture.core);
    let device_channel = fixture.core.device_channel(listener).unwrap();
    let child = fixture.core.wants_event(device_channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    fixture.core.handle_event(device_channel, request).unwrap();
    assert!(fixture.core.poll_event(fixture.on).is_some());
    while fixture.core.poll_readable().is_some() {}
    fixture.id = child;
    (fixture, listener, device_channel)
}

#[test]
fn an_accept_that_migrates_the_id_first() {
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    let accept = Request::Accept { param, private_data: &[3; 40] };
    for space in [PortSpace::Tcp, PortSpace::Udp] {
        for acks in [Acks::Explicit, Acks::OnDelivery] {
            let (mut fixture, listener, device_channel) = requested(space, acks);
            assert!(fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "{space:?}");
            // With a single event outside the lists.
            let other = fixture.core.id_keys().next().unwrap();
            fixture.core.handle_event(fixture.on, RawEvent::new(other, CmEvent::AddrChange)).unwrap();
            assert!(fixture.core.single.is_some());
            assert!(fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "{space:?}");
            // With events of the id.
            fixture.core.handle_event(device_channel, RawEvent::new(fixture.id, CmEvent::Unknown(77))).unwrap();
            assert!(fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "{space:?}");
            let mut made = Vec::new();
            let make = |call: &crate::call::Call, _: &[u8]| {
                made.push(call.name());
                Ok(())
            };
            let mut done = fixture.core.clone();
            assert_eq!(done.perform(NOW, fixture.id, &accept, DUE, make), Some(Ok(())));
            assert_eq!(
                (made, done.device_channel(fixture.id)),
                (alloc::vec!["migrate_id", "accept"], Some(fixture.on))
            );
            assert_eq!(done.poll_readable(), None);
            done.check();
            // The channel closes when its last id leaves.
            fixture.core.submit(NOW, listener, Request::DestroyNow, Time::NEVER).unwrap();
            finish(&mut fixture.core);
            assert!(!fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "{space:?}");
        }
    }
}

#[test]
fn there_is_no_short_path_for_an_accept_that_is_refused_or_whose_id_is_not_plain() {
    type Unusual = fn(&mut Core, IdKey, ChannelKey);
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    let accept = Request::Accept { param, private_data: &[] };
    let unusual: [Unusual; 6] = [
        |core, id, _| core.ids.get_mut(id).unwrap().owed = 1,
        |core, id, _| core.ids.get_mut(id).unwrap().pending_call = PendingCall::Answer,
        |core, id, to| core.ids.get_mut(id).unwrap().pending_migrate = Some(PendingMigrate { to: Some(to) }),
        |core, id, _| core.ids.get_mut(id).unwrap().waived = true,
        |core, id, _| core.ids.get_mut(id).unwrap().state = State::Failed,
        |core, id, _| {
            let channel = core.channel(id).unwrap();
            while core.handle_unreadable(channel) {}
        },
    ];
    for (at, make) in unusual.into_iter().enumerate() {
        let (mut fixture, ..) = requested(PortSpace::Tcp, Acks::Explicit);
        make(&mut fixture.core, fixture.id, fixture.to);
        assert!(!fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "{at}");
    }
    let (mut fixture, ..) = requested(PortSpace::Tcp, Acks::Explicit);
    assert!(!fixture.core.compare_request(NOW, fixture.id, &accept, NOW), "too late");
    let unnumbered = Request::Accept { param: ConnParam::default(), private_data: &[] };
    assert!(!fixture.core.compare_request(NOW, fixture.id, &unnumbered, DUE), "without a QP");
    fixture.core.open_channel(Acks::Explicit).unwrap();
    assert!(!fixture.core.compare_request(NOW, fixture.id, &accept, DUE), "another call is to be made");
}
