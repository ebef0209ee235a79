//! Each short path against its long path: on every cell, and on ids for which there is no short path.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Admission, Core};
use crate::errno::Errno;
use crate::event::{CmEvent, ConnParam, Ece, RawEvent, Receipt};
use crate::id::{Doing, Id, Quiesce, Waiting};
use crate::key::{ChannelKey, IdKey};
use crate::limits::Limits;
use crate::plain;
use crate::request::{Acks, CmOption, PortSpace, RejectReason, Request, Verb};
use crate::state::State;
use crate::table::{self, Fact};
use crate::time::Time;

const NOW: Time = Time(1000);
const DUE: Time = Time(5000);
const LATER: Time = Time(9000);

/// Two channels, and on the first an id of which nothing is known but its state. Another id has a deadline after `DUE`.
struct Stage {
    core: Core,
    on: ChannelKey,
    to: ChannelKey,
    id: IdKey,
}

impl Stage {
    fn new(acks: Acks) -> Self {
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
        Stage { core, on, to, id }
    }

    /// With the id in this state, and with a deadline where it waits for something.
    fn in_state(state: State, port_space: PortSpace, acks: Acks) -> Self {
        let mut stage = Stage::new(acks);
        let id = stage.core.ids.get_mut(stage.id).unwrap();
        (id.state, id.port_space) = (state, port_space);
        // An ACK that was owed before is none of the next event's.
        id.owed = 1;
        if table::operation(state).is_some() {
            stage.core.set_deadline(stage.id, DUE);
        }
        stage
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
fn finish(core: &mut Core) {
    while let Some((token, _)) = core.poll_call() {
        core.take_outcome(token, Ok(())).unwrap();
    }
}

fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 7471)
}

#[test]
fn an_event_in_and_out() {
    let mut short = 0;
    for (state, space, acks) in Stage::every_state() {
        for (code, private_data) in (0..=20).flat_map(|code| [(code, &[][..]), (code, &[7; 56][..])]) {
            let stage = Stage::in_state(state, space, acks);
            let kind = CmEvent::from_code(code);
            let raw = RawEvent { status: -1, private_data, ..RawEvent::new(stage.id, kind) };
            // A read is short on this channel, whatever it finds.
            assert!(stage.core.compare_read(stage.on, Ok(Some(raw))), "{kind} while {state}");
            let is_short = stage.core.compare_event(stage.on, &raw);
            assert_eq!(is_short, plain::event(state, Fact::of(kind)).is_some(), "{kind} while {state}");
            short += usize::from(is_short);
        }
    }
    assert!(short > 800, "{short} of them");
}

/// A request for a QP that was found to be allowed is only noted.
#[test]
fn a_qp() {
    let mut allowed = 0;
    for (state, space, acks) in Stage::every_state() {
        for (had_qp, request) in [(false, Request::AttachQp), (true, Request::DetachQp)] {
            let Stage { mut core, id, .. } = Stage::in_state(state, space, acks);
            let it = core.ids.get_mut(id).unwrap();
            (it.has_device, it.has_qp) = (true, had_qp);
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
    for (state, space, _) in Stage::every_state() {
        let mut stage = Stage::in_state(state, space, Acks::Explicit);
        let id = stage.id;
        let raw = RawEvent::new(id, CmEvent::AddrChange);
        let Ok(Admission::Known) = stage.core.handle_event(stage.on, raw) else { continue };
        let receipt = stage.core.poll_event(stage.on).unwrap().receipt.unwrap();
        let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
        let same = Receipt { owner: id, group: None };
        short.ack(receipt).unwrap();
        long.ids.get_mut(id).unwrap().owed -= 1;
        long.acked(same);
        assert_eq!(short, long, "{state}");
    }
}

/// One of each kind, and some that a guard refuses.
fn requests() -> Vec<Request<'static>> {
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
    for (state, space, acks) in Stage::every_state() {
        for request in &requests() {
            let mut stage = Stage::in_state(state, space, acks);
            // A destruction would wait for it.
            stage.core.ids.get_mut(stage.id).unwrap().owed = 0;
            short += usize::from(stage.core.compare_request(NOW, stage.id, request, DUE));
        }
    }
    assert!(short > 350, "{short} of them");
}

#[test]
fn an_event_between_a_request_and_its_outcome() {
    for (state, space, acks) in Stage::every_state() {
        for request in &requests() {
            let stage = Stage::in_state(state, space, acks);
            let (mut short, mut long) = (stage.core.clone(), stage.core.clone());
            if !short.submit_short(NOW, stage.id, request, DUE) {
                continue;
            }
            long.submit_any(NOW, stage.id, request, DUE).unwrap();
            let both = [&mut short, &mut long].map(|core| {
                let (token, _) = core.poll_call().unwrap();
                let admitted = core.handle_event(stage.on, RawEvent::new(stage.id, CmEvent::Disconnected));
                (admitted, core.handle_outcome(token, Ok(())))
            });
            assert_eq!(both[0], both[1], "{request:?} while {state}");
            assert_eq!(short, long, "{request:?} while {state}");
        }
    }
}

/// A property that takes the short paths from an id, and what it is called.
type Unusual = (&'static str, fn(&mut Id, ChannelKey));

const UNUSUAL: [Unusual; 10] = [
    ("synchronous", |id, _| id.sync = true),
    ("a call under way", |id, _| id.doing = Doing::Answer),
    ("moving", |id, to| id.doing = Doing::Move { to, by_event: false, arrived: false }),
    ("waiting for an event", |id, _| id.waiting = Waiting::For(Verb::Join)),
    ("an ended request", |id, _| id.waiting = Waiting::Without { timed_out: false }),
    ("a migration that waits", |id, to| id.quiesce = Some(Quiesce { to: Some(to) })),
    ("another line", |id, to| id.line = to),
    ("waived acks", |id, _| id.waived = true),
    ("an overtaken call", |id, _| id.orphaned = true),
    ("an answer that is due", |id, _| id.answer_due = true),
];

#[test]
fn there_is_no_short_path_for_an_id_that_is_not_plain() {
    for (name, make) in UNUSUAL {
        for state in State::ALL {
            let mut stage = Stage::in_state(state, PortSpace::Tcp, Acks::Explicit);
            // It is known as plain before.
            stage.core.ids.get_untouched(stage.id).unwrap().is_plain();
            make(stage.core.ids.get_mut(stage.id).unwrap(), stage.to);
            for code in 0..=20 {
                let raw = RawEvent::new(stage.id, CmEvent::from_code(code));
                assert!(!stage.core.compare_event(stage.on, &raw), "{name}: {} while {state}", raw.kind);
            }
            let migrate = Request::Migrate { to: Some(stage.to) };
            for request in requests().iter().chain([&migrate]) {
                let is_short = stage.core.compare_request(NOW, stage.id, request, DUE);
                assert!(!is_short, "{name}: {request:?} while {state}");
            }
        }
    }
}

#[test]
fn a_migration_or_a_destruction_with_events() {
    for events in 0..5 {
        let mut stage = Stage::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
        stage.core.ids.get_mut(stage.id).unwrap().owed = 0;
        let other = stage.core.id_keys().find(|&id| id != stage.id).unwrap();
        // Alone, next to each other, and with events of another id between them.
        for at in 0..events {
            for about in [stage.id, other].into_iter().take(1 + at % 2) {
                stage.core.handle_event(stage.on, RawEvent::new(about, CmEvent::AddrChange)).unwrap();
            }
        }
        let migrate = Request::Migrate { to: Some(stage.to) };
        assert!(stage.core.compare_request(NOW, stage.id, &migrate, DUE), "{events} events");
        assert_eq!(stage.core.compare_request(NOW, stage.id, &Request::Destroy, DUE), events == 0, "{events} events");
        assert_eq!(stage.core.perform(NOW, stage.id, &migrate, DUE, |_, _| Ok(())), Some(Ok(())));
        stage.core.check();
        let moved = core::iter::from_fn(|| stage.core.poll_event(stage.to)).count();
        assert_eq!(moved, events);
    }
}

#[test]
fn what_a_migration_or_a_destruction_waits_for_has_no_short_path() {
    let stage = Stage::in_state(State::Connected, PortSpace::Tcp, Acks::Explicit);
    assert_eq!(stage.core.owed(stage.id), 1);
    for request in [Request::Migrate { to: Some(stage.to) }, Request::Destroy] {
        assert!(!stage.core.compare_request(NOW, stage.id, &request, DUE), "{request:?}");
    }
    let mut waiting = Stage::in_state(State::Connecting, PortSpace::Tcp, Acks::Explicit);
    waiting.core.ids.get_mut(waiting.id).unwrap().owed = 0;
    assert!(!waiting.core.compare_request(NOW, waiting.id, &Request::Destroy, DUE), "it has a deadline");
}

#[test]
fn the_single_event_counts_against_the_limit_on_all_events() {
    let mut stage = Stage::new(Acks::OnDelivery);
    let there = stage.core.create_id(Some(stage.to), PortSpace::Tcp).unwrap();
    finish(&mut stage.core);
    stage.core.limits.events = 2;
    for (on, id) in [(stage.to, there), (stage.to, there), (stage.on, stage.id)] {
        stage.core.handle_event(on, RawEvent::new(id, CmEvent::AddrChange)).unwrap();
        if on == stage.to && stage.core.single.is_none() {
            // One of two: the other is on the lists.
            assert!(stage.core.poll_event(on).is_some());
        }
    }
    assert_eq!((stage.core.single.is_some(), stage.core.mail.of_device()), (true, 1));
    assert_eq!(stage.core.wants_event(stage.to), None);
    stage.core.link_single();
    assert_eq!(stage.core.wants_event(stage.to), None);
    assert!(stage.core.poll_event(stage.on).is_some());
    assert!(stage.core.wants_event(stage.to).is_some());
}

#[test]
fn deadlines_that_the_short_path_leaves_behind_are_swept_out() {
    let mut stage = Stage::new(Acks::OnDelivery);
    let resolve = Request::ResolveAddr { src: None, dst: peer() };
    for step in 0..1000 {
        let id = stage.core.perform_create(stage.on, PortSpace::Tcp, |_| Ok(())).unwrap().unwrap();
        let due = Time(LATER.0 + step);
        stage.core.perform(NOW, id, &resolve, due, |_, _| Ok(())).unwrap().unwrap();
        assert!(stage.core.admit_short(stage.on, &RawEvent::new(id, CmEvent::AddrResolved)));
        assert!(stage.core.poll_event(stage.on).is_some());
        stage.core.perform(NOW, id, &Request::Destroy, Time::NEVER, |_, _| Ok(())).unwrap().unwrap();
        assert!(!stage.core.alarms.is_littered(), "after {step} ids");
    }
    assert_eq!(stage.core.ids(), 2);
    stage.core.check();
}

#[test]
fn a_new_id() {
    for outcome in [Ok(()), Err(Errno::ENODEV)] {
        let stage = Stage::new(Acks::Explicit);
        let (mut short, mut long) = (stage.core.clone(), stage.core);
        let performed = short.perform_create(stage.on, PortSpace::Udp, |_| outcome).unwrap();
        let id = long.create_id(Some(stage.on), PortSpace::Udp).unwrap();
        let (token, _) = long.poll_call().unwrap();
        let ended = long.take_outcome(token, outcome).unwrap().unwrap();
        assert_eq!(performed, ended.result.map(|()| id));
        assert_eq!(short, long);
        assert_eq!(short.ids.next_key(), long.ids.next_key());
    }
}

/// A listener, its channel at the device, and the id of a request to it that was taken.
fn asked(space: PortSpace, acks: Acks) -> (Stage, IdKey, ChannelKey) {
    let mut stage = Stage::new(acks);
    let listener = stage.core.create_id(Some(stage.on), space).unwrap();
    finish(&mut stage.core);
    stage.core.submit(NOW, listener, Request::Listen { backlog: 3 }, Time::NEVER).unwrap();
    finish(&mut stage.core);
    let line = stage.core.line(listener).unwrap();
    let child = stage.core.wants_event(line).unwrap();
    let request = RawEvent { listener: Some(listener), ..RawEvent::new(child, CmEvent::ConnectRequest) };
    stage.core.handle_event(line, request).unwrap();
    assert!(stage.core.poll_event(stage.on).is_some());
    while stage.core.poll_readable().is_some() {}
    stage.id = child;
    (stage, listener, line)
}

#[test]
fn an_accept_that_migrates_the_id_first() {
    let param = ConnParam { qp_num: 17, ..ConnParam::default() };
    let accept = Request::Accept { param, private_data: &[3; 40] };
    for space in [PortSpace::Tcp, PortSpace::Udp] {
        for acks in [Acks::Explicit, Acks::OnDelivery] {
            let (mut stage, listener, line) = asked(space, acks);
            assert!(stage.core.compare_request(NOW, stage.id, &accept, DUE), "{space:?}");
            // With an event beside the lists.
            let other = stage.core.id_keys().next().unwrap();
            stage.core.handle_event(stage.on, RawEvent::new(other, CmEvent::AddrChange)).unwrap();
            assert!(stage.core.single.is_some());
            assert!(stage.core.compare_request(NOW, stage.id, &accept, DUE), "{space:?}");
            // With events of its own.
            stage.core.handle_event(line, RawEvent::new(stage.id, CmEvent::Unknown(77))).unwrap();
            assert!(stage.core.compare_request(NOW, stage.id, &accept, DUE), "{space:?}");
            let mut made = Vec::new();
            let make = |call: &crate::device::Call, _: &[u8]| {
                made.push(call.name());
                Ok(())
            };
            let mut done = stage.core.clone();
            assert_eq!(done.perform(NOW, stage.id, &accept, DUE, make), Some(Ok(())));
            assert_eq!((made, done.line(stage.id)), (alloc::vec!["migrate_id", "accept"], Some(stage.on)));
            assert_eq!(done.poll_readable(), None);
            done.check();
            // The last one on a channel closes it.
            stage.core.submit(NOW, listener, Request::DestroyNow, Time::NEVER).unwrap();
            finish(&mut stage.core);
            assert!(!stage.core.compare_request(NOW, stage.id, &accept, DUE), "{space:?}");
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
        |core, id, _| core.ids.get_mut(id).unwrap().doing = Doing::Answer,
        |core, id, to| core.ids.get_mut(id).unwrap().quiesce = Some(Quiesce { to: Some(to) }),
        |core, id, _| core.ids.get_mut(id).unwrap().waived = true,
        |core, id, _| core.ids.get_mut(id).unwrap().state = State::Failed,
        |core, id, _| {
            let home = core.home(id).unwrap();
            while core.handle_unreadable(home) {}
        },
    ];
    for (at, make) in unusual.into_iter().enumerate() {
        let (mut stage, ..) = asked(PortSpace::Tcp, Acks::Explicit);
        make(&mut stage.core, stage.id, stage.to);
        assert!(!stage.core.compare_request(NOW, stage.id, &accept, DUE), "{at}");
    }
    let (mut stage, ..) = asked(PortSpace::Tcp, Acks::Explicit);
    assert!(!stage.core.compare_request(NOW, stage.id, &accept, NOW), "too late");
    let unnumbered = Request::Accept { param: ConnParam::default(), private_data: &[] };
    assert!(!stage.core.compare_request(NOW, stage.id, &unnumbered, DUE), "without a QP");
    stage.core.open_channel(Acks::Explicit).unwrap();
    assert!(!stage.core.compare_request(NOW, stage.id, &accept, DUE), "another call is to be made");
}
