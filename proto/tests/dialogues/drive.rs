//! The drive loop, on a device that records its calls.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{
    Acks, Call, ChannelKey, CmEvent, CmOption, ConnParam, Device, Drive, Ece, Errno, Error, EventKind, GroupKey, IdKey,
    Limits, Next, Outcome, PortSpace, Progress, RawEvent, State, Time,
};

use crate::fixture::{addr, cm, group_addr, raw};

/// Records the names of the calls, and reports the events that the test queues. A call fails if `fails` names it.
#[derive(Default)]
struct Diary {
    calls: Vec<&'static str>,
    events: VecDeque<(ChannelKey, RawEvent<&'static [u8]>)>,
    fails: Option<(&'static str, Errno)>,
}

impl Device for Diary {
    type Handle = ();

    fn fetch(&mut self, on: ChannelKey, _: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let at = self.events.iter().position(|(channel, _)| *channel == on);
        Ok(at.and_then(|at| self.events.remove(at)).map(|(_, raw)| raw))
    }

    fn call(&mut self, call: &Call, _: &[u8]) -> Outcome {
        self.calls.push(call.name());
        self.fails.take_if(|(name, _)| *name == call.name()).map_or(Ok(()), |(_, errno)| Err(errno))
    }

    fn local_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Ok(addr(1))
    }

    fn peer_addr(&self, _: IdKey) -> Result<SocketAddr, Errno> {
        Ok(addr(2))
    }

    fn remote_ece(&self, _: IdKey) -> Result<Ece, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn release(&mut self, _: IdKey, _: ChannelKey) -> Result<(), Errno> {
        Ok(())
    }

    fn adopt(&mut self, _: IdKey, _: ChannelKey, (): ()) -> Outcome {
        Ok(())
    }
}

/// Queues an event at the device and reads it in a turn.
fn report(drive: &mut Drive<Diary>, id: IdKey, group: Option<GroupKey>, kind: CmEvent) {
    let device_channel = drive.core().device_channel(id).unwrap();
    drive.device_mut().events.push_back((device_channel, RawEvent { group, ..raw(id, kind, 0) }));
    drive.readable(device_channel);
    assert_ne!(drive.run(8), Next::Again);
    drive.core().check();
}

fn calls(drive: &mut Drive<Diary>) -> Vec<&'static str> {
    std::mem::take(&mut drive.device_mut().calls)
}

fn connected(drive: &mut Drive<Diary>, on: ChannelKey) -> IdKey {
    let id = drive.create_id(Some(on), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    report(drive, id, None, CmEvent::AddrResolved);
    assert!(drive.next_event(on).is_some());
    drive.resolve_route(id, Time::NEVER).unwrap();
    report(drive, id, None, CmEvent::RouteResolved);
    assert!(drive.next_event(on).is_some());
    let param = ConnParam { qp_num: 7, ..ConnParam::default() };
    drive.connect(id, param, b"", Time::NEVER).unwrap();
    report(drive, id, None, CmEvent::ConnectResponse);
    assert!(drive.next_event(on).is_some());
    drive.establish(id).unwrap();
    while drive.next_event(on).is_some() {}
    calls(drive);
    id
}

#[test]
fn a_leave_that_is_done_does_not_wait_for_another_that_is_not() {
    let mut drive = Drive::new(Diary::default(), Limits::SINGLE);
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Udp).unwrap();
    drive.bind(id, addr(1)).unwrap();
    let [one, two] = [3, 4].map(|last| drive.join(id, group_addr(last), false, Time::NEVER).unwrap());
    report(&mut drive, id, Some(one), CmEvent::MulticastJoin);
    let held = drive.next_event(channel).unwrap();
    calls(&mut drive);
    assert_eq!(drive.leave(id, one).unwrap(), Progress::WhenAcked);
    assert_eq!(calls(&mut drive), [""; 0]);
    assert_eq!(drive.leave(id, two).unwrap(), Progress::Done);
    assert_eq!(calls(&mut drive), ["leave_multicast"]);
    drive.ack(held.ack_token.unwrap()).unwrap();
    assert_eq!(calls(&mut drive), ["leave_multicast"]);
    let left = drive.next_event(channel).unwrap();
    assert_eq!((left.kind, left.group), (EventKind::Left, Some(one)));

    drive.device_mut().fails = Some(("join_multicast", Errno::EINVAL));
    let failed = drive.join(id, group_addr(3), false, Time::NEVER).unwrap_err();
    assert_eq!((failed.errno(), drive.core().summary().groups), (Errno::EINVAL, 0));
    assert_eq!(drive.destroy(id, Time::NEVER).unwrap(), Progress::Done);
    drive.close_channel(channel).unwrap();
    assert_eq!(calls(&mut drive), ["join_multicast", "destroy_id", "destroy_event_channel"]);
}

#[test]
fn a_teardown_answers_by_itself_and_a_deadline_is_acted_on_by_the_next_turn() {
    let mut drive = Drive::new(Diary::default(), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = connected(&mut drive, channel);
    let deadline = drive.within(Duration::from_millis(2));
    drive.teardown(id, deadline).unwrap();
    drive.set_option(id, CmOption::ReuseAddr(true)).unwrap();
    report(&mut drive, id, None, CmEvent::Disconnected);
    assert_eq!(calls(&mut drive), ["disconnect", "set_option"]);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.next_event(channel).unwrap().kind, cm(CmEvent::Disconnected));
    assert_eq!(calls(&mut drive), ["disconnect"]);
    assert!(drive.next_event(channel).is_none());
    assert_eq!(drive.run(8), Next::Wait(Some(deadline)));
    drive.set_now(deadline);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.core().state(id), Some(State::Closed));
    assert_eq!(drive.destroy(id, Time::NEVER).unwrap(), Progress::Done);
}

#[test]
fn get_request_returns_the_requests_of_a_listener() {
    let mut drive = Drive::new(Diary::default(), Limits::SINGLE);
    let listener = drive.create_id(None, PortSpace::Tcp).unwrap();
    drive.listen(listener, 1).unwrap();
    drive.get_request(listener, Time::NEVER).unwrap();
    assert_eq!(drive.core().sync_result(listener), None);
    let device_channel = drive.core().device_channel(listener).unwrap();
    let child = drive.core().wants_event(device_channel).unwrap();
    let request = RawEvent { listener: Some(listener), ..raw(child, CmEvent::ConnectRequest, 0) };
    drive.device_mut().events.push_back((device_channel, request));
    drive.readable(device_channel);
    assert_eq!(drive.run(8), Next::Deliver);
    assert_eq!(drive.core().sync_event(listener).unwrap().id, child);
    assert_eq!(drive.migrate(child, None, Time::NEVER).unwrap(), Progress::Done);
    drive.accept(child, ConnParam { qp_num: 7, ..ConnParam::default() }, b"", Time::NEVER).unwrap();
    drive.notify_established(child).unwrap();
    report(&mut drive, child, None, CmEvent::Established);
    assert_eq!(drive.core().sync_result(child), Some(Ok(())));
    for id in [child, listener] {
        assert_eq!(drive.destroy(id, Time::NEVER).unwrap(), Progress::Done);
    }
    assert_eq!((drive.core().ids().count(), drive.core().channels().count()), (0, 0));
}

#[test]
fn an_error_of_the_device_is_that_of_the_method() {
    let mut drive = Drive::new(Diary::default(), Limits::SINGLE);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.device_mut().fails = Some(("bind_addr", Errno::EADDRINUSE));
    let failed = drive.bind(id, addr(1)).unwrap_err();
    assert_eq!(failed.to_string(), "failed: bind_addr on id0 while idle: EADDRINUSE");
    assert!(matches!(drive.establish(id), Err(Error::Refused(_))));
    assert_eq!(drive.remote_ece(id), Err(Errno::EOPNOTSUPP));
    assert_eq!(drive.next_fault(), None);
}
