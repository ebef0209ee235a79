//! Two cores in one process, connected over the fabric in virtual time.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, Caps, CreateError, QpAttrs, QpParts, QpState, SendWr, SrqCaps};
use cmid_proto::handshake::{Dial, DialTo, Incoming};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Drive, Errno, Error, Event, EventKind, IdKey, Limits, PortSpace,
    RefuseReason, Refused, RequestKind, Time,
};
use cmid_sim::{Config, Cq, Fabric, Qp, SimDevice};

/// Two cores, each with a host and a channel of its own.
struct Pair {
    fabric: Fabric,
    sides: [Drive<SimDevice>; 2],
    channels: [ChannelKey; 2],
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(Config::default());
        let hosts = ["10.0.0.1", "10.0.0.2"].map(|address| fabric.host(&[address.parse().unwrap()]));
        let mut sides = hosts.each_ref().map(|host| Drive::new(host.device(), Limits::SINGLE));
        let channels = sides.each_mut().map(|drive| drive.open_channel(Acks::OnDelivery).unwrap());
        Pair { fabric, sides, channels }
    }

    /// Runs the cores and the fabric until a core has an event. Time advances to the next timer.
    fn next(&mut self) -> (usize, Event) {
        // The limit makes a livelock a failure.
        for _ in 0..1000 {
            for (at, drive) in self.sides.iter_mut().enumerate() {
                drive.set_now(self.fabric.now());
                drive.readable(self.channels[at]);
                let lines: Vec<_> = drive.core().ids().filter_map(|id| drive.core().device_channel(id)).collect();
                lines.into_iter().for_each(|device_channel| drive.readable(device_channel));
                let _ = drive.run(100);
                drive.core().check();
                if let Some(event) = drive.next_event(self.channels[at]) {
                    return (at, event);
                }
            }
            let due = self.sides.iter().filter_map(Drive::next_timeout).chain(self.fabric.next_due()).min();
            let cores = || self.sides.each_ref().map(|drive| drive.core().summary().to_string());
            self.fabric.advance_to(due.unwrap_or_else(|| panic!("nothing will ever happen again: {:?}", cores())));
        }
        panic!("no event in 1000 steps");
    }

    fn expect(&mut self, at: usize, kind: CmEvent, status: i32) -> IdKey {
        let (seen, event) = self.next();
        assert_eq!((seen, event.kind, event.status), (at, EventKind::Cm(kind), status));
        event.id
    }

    /// A client id with a route.
    fn resolved(&mut self, port_space: PortSpace) -> IdKey {
        let there: SocketAddr = "10.0.0.2:7471".parse().unwrap();
        let id = self.sides[CLIENT].create_id(Some(self.channels[CLIENT]), port_space).unwrap();
        self.sides[CLIENT].resolve_addr(id, None, there, Time::NEVER).unwrap();
        self.expect(CLIENT, CmEvent::AddrResolved, 0);
        self.sides[CLIENT].resolve_route(id, Time::NEVER).unwrap();
        self.expect(CLIENT, CmEvent::RouteResolved, 0);
        id
    }

    fn listen(&mut self, port_space: PortSpace) -> IdKey {
        let id = self.sides[SERVER].create_id(Some(self.channels[SERVER]), port_space).unwrap();
        self.sides[SERVER].bind(id, "10.0.0.2:7471".parse().unwrap()).unwrap();
        self.sides[SERVER].listen(id, 4).unwrap();
        id
    }
}

fn param(qp_num: u32) -> ConnParam {
    ConnParam { qp_num, ..ConnParam::default() }
}

#[test]
fn a_peer_that_does_not_answer_a_disconnect_is_given_up_after_a_minute_or_at_the_deadline() {
    for limit in [None, Some(Duration::from_secs(3))] {
        let mut pair = Pair::new();
        pair.listen(PortSpace::Tcp);
        let client = pair.resolved(PortSpace::Tcp);
        pair.sides[CLIENT].connect(client, param(1), &[], Time::NEVER).unwrap();
        let server = pair.expect(SERVER, CmEvent::ConnectRequest, 0);
        pair.sides[SERVER].accept(server, param(2), &[], Time::NEVER).unwrap();
        pair.expect(CLIENT, CmEvent::ConnectResponse, 0);
        pair.sides[CLIENT].establish(client).unwrap();
        pair.expect(SERVER, CmEvent::Established, 0);
        let before = pair.fabric.now();
        let deadline = limit.map_or(Time::NEVER, |limit| before.after(limit));
        pair.sides[CLIENT].disconnect(client, deadline).unwrap();
        pair.expect(SERVER, CmEvent::Disconnected, 0);
        let (at, event) = pair.next();
        let waited = pair.fabric.now().since(before);
        assert_eq!(at, CLIENT);
        match limit {
            // Behaviour 32: 16 transmissions of 4.6 s.
            None => {
                assert_eq!((event.cm(), event.status), (Some(CmEvent::Disconnected), -110));
                assert!(waited > Duration::from_secs(70) && waited < Duration::from_secs(85), "{waited:?}");
            }
            Some(limit) => {
                assert_eq!((event.kind, waited), (EventKind::DeadlinePassed(RequestKind::Disconnect), limit));
            }
        }
    }
}

/// Creates a QP on an id, with its CQ.
fn make(device: &mut SimDevice, to: Attaching<'_>) -> Result<(Qp, Cq), CreateError> {
    let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 64)?);
    Ok((device.create_qp(to, &pd, &cq, &cq, Caps::default())?, cq))
}

#[test]
fn an_attach_that_fails_or_panics_after_it_has_made_the_qp_leaves_the_id_as_before() {
    for panics in [false, true] {
        let mut pair = Pair::new();
        let id = pair.resolved(PortSpace::Tcp);
        let drive = &mut pair.sides[CLIENT];
        let mut kept = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            drive.attach_qp(id, |device, to| {
                kept = Some(make(device, to)?);
                if panics { panic!("the application's") } else { Err::<(), _>(Errno::ENOMEM.into()) }
            })
        }));
        assert_eq!(outcome.is_err(), panics);
        let (qp, _cq) = kept.expect("it was made");
        assert_eq!(qp.state(), Ok(QpState::ERR), "the id has it no more, and the handle does");
        let refused = drive.detach_qp(id, |device, id| device.destroy_qp(id)).unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        let (qp, _cq) = drive.attach_qp(id, make).unwrap();
        assert_eq!(qp.state(), Ok(QpState::INIT));
        drive.core().check();
        pair.listen(PortSpace::Tcp);
        pair.sides[CLIENT].connect(id, ConnParam::default(), &[], Time::NEVER).unwrap();
        pair.expect(SERVER, CmEvent::ConnectRequest, 0);
    }
}

#[test]
fn a_detach_that_fails_or_panics_leaves_what_the_device_has() {
    for (destroys, panics) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut pair = Pair::new();
        let id = pair.resolved(PortSpace::Tcp);
        let drive = &mut pair.sides[CLIENT];
        let _first = drive.attach_qp(id, make).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            drive.detach_qp(id, |device, id| {
                if destroys {
                    device.destroy_qp(id)?;
                }
                if panics { panic!("the application's") } else { Err(Errno::ENOMEM) }
            })
        }));
        assert_eq!(outcome.is_err(), panics);
        let again = drive.attach_qp(id, make);
        assert_eq!(again.is_ok(), destroys);
        assert_eq!(drive.detach_qp(id, |device, id| device.destroy_qp(id)), Ok(()));
        drive.core().check();
    }
}

#[test]
fn a_closure_that_makes_or_destroys_no_qp_leaves_what_the_device_has() {
    let mut pair = Pair::new();
    pair.listen(PortSpace::Tcp);
    let id = pair.resolved(PortSpace::Tcp);
    let drive = &mut pair.sides[CLIENT];
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    let refused = drive.connect(id, ConnParam::default(), &[], Time::NEVER).unwrap_err();
    assert!(matches!(refused, Error::Refused(Refused::Request { reason: RefuseReason::NoQp, .. })), "{refused}");
    let _made = drive.attach_qp(id, make).unwrap();
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    drive.connect(id, ConnParam::default(), &[], Time::NEVER).unwrap();
    pair.expect(SERVER, CmEvent::ConnectRequest, 0);
}

#[test]
fn a_handshake_whose_attach_panics_is_over_and_its_peer_is_told() {
    fn attach(_: &mut Drive<SimDevice>, _: IdKey) -> Result<(), Error> {
        panic!("the application's")
    }
    let mut pair = Pair::new();
    pair.listen(PortSpace::Tcp);
    let id = pair.resolved(PortSpace::Tcp);
    let _made = pair.sides[CLIENT].attach_qp(id, make).unwrap();
    pair.sides[CLIENT].connect(id, ConnParam::default(), &[], Time::NEVER).unwrap();
    let (_, event) = pair.next();
    let drive = &mut pair.sides[SERVER];
    let request = Incoming::new(drive, event).unwrap();
    let accept = || drop(request.accept(drive, ConnParam::default(), &[], Time::NEVER, attach));
    catch_unwind(AssertUnwindSafe(accept)).unwrap_err();
    assert_eq!(drive.core().ids().count(), 1, "only the listener is left");
    pair.expect(CLIENT, CmEvent::Rejected, 28);

    let (drive, channel) = (&mut pair.sides[CLIENT], pair.channels[CLIENT]);
    let mut dial =
        Dial::start(drive, Some(channel), &DialTo::new("10.0.0.2:7471".parse().unwrap()), Time::NEVER).unwrap();
    while !dial.is_over() {
        let (_, event) = pair.next();
        let drive = &mut pair.sides[CLIENT];
        let handled = catch_unwind(AssertUnwindSafe(|| drop(dial.handle(drive, event, attach))));
        assert_eq!(handled.is_err(), dial.is_over());
    }
    assert_eq!(pair.sides[CLIENT].core().state(dial.id()), None);
}

/// The PD, the CQ and the QP of both sides are made without a closure, and carry a message.
#[test]
fn a_qp_that_is_made_without_a_wish_carries_messages() {
    let mut pair = Pair::new();
    pair.listen(PortSpace::Tcp);
    let client = pair.resolved(PortSpace::Tcp);
    let mut from = pair.sides[CLIENT].qp(client).attach().unwrap();
    let sent = from.pd.register(b"hello".to_vec(), Access::LOCAL_WRITE).unwrap();
    pair.sides[CLIENT].connect(client, ConnParam::default(), &[], Time::NEVER).unwrap();
    let server = pair.expect(SERVER, CmEvent::ConnectRequest, 0);
    let mut to = pair.sides[SERVER].qp(server).cq((16, 16)).attach().unwrap();
    let received = to.pd.register(vec![0; 5], Access::LOCAL_WRITE).unwrap();
    to.qp.post_recv(1, received.sge(0..5)).unwrap();
    pair.sides[SERVER].accept(server, ConnParam::default(), &[], Time::NEVER).unwrap();
    pair.expect(CLIENT, CmEvent::Established, 0);
    from.qp.post_send(SendWr::send(2, sent.sge(0..5))).unwrap();
    pair.expect(SERVER, CmEvent::Established, 0);
    pair.fabric.advance_by(Duration::from_secs(1));
    let (mut bytes, of_sends) = ([0; 5], to.cq.0.poll_one());
    received.read(0, &mut bytes).unwrap();
    assert_eq!((&bytes, of_sends), (b"hello", Ok(None)));
    assert_eq!(to.cq.1.poll_one().unwrap().map(|completion| completion.wr_id), Some(1));
    assert_eq!(from.cq.poll_one().unwrap().map(|completion| completion.wr_id), Some(2));
}

/// Several QPs of a PD, a CQ and an SRQ that exist.
#[test]
fn what_is_given_to_a_qp_is_shared() {
    let mut pair = Pair::new();
    let (first, channel) = (pair.resolved(PortSpace::Tcp), pair.channels[CLIENT]);
    let drive = &mut pair.sides[CLIENT];
    let second = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(second, "10.0.0.1:0".parse().unwrap()).unwrap();
    let QpParts { qp, pd, cq } = drive.qp(first).cq(100).attach().unwrap();
    let srq = pd.create_srq(SrqCaps { max_wr: 8, max_sge: 1 }).unwrap();
    let attrs = QpAttrs { retry_count: Some(3), ..QpAttrs::default() };
    let other = drive.qp(second).pd(&pd).cq(&cq).srq(&srq).attrs(attrs).attach().unwrap();
    assert_ne!(qp.num(), other.qp.num());
    assert_eq!(cq.room().reserved(), 32 + 16 + 8);
    assert_eq!(pd.users(), 3, "two QPs and the SRQ");
    let full = drive.detach_qp(first, |device, id| device.destroy_qp(id));
    assert_eq!(full, Ok(()));
    let caps = Caps { max_send_wr: 1000, ..Caps::default() };
    let failed = drive.qp(first).pd(&pd).cq(&cq).caps(caps).attach().unwrap_err();
    assert!(failed.to_string().contains("would overrun the CQ of depth"), "{failed}");
}
