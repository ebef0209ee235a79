//! Section "channels, ack, migrate" of the conformance scenarios.

use std::os::fd::AsFd;

use cmid_proto::{Call, ChannelKey, CmEvent, Errno, Pollable};
use cmid_sim::Config;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use crate::common::{EINVAL, Lab, SECOND, Side};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn readable(side: &Side, channel: ChannelKey) -> bool {
    let fd = side.device.fd(channel).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&AT_ONCE)).unwrap() == 1
}

#[test]
fn row_47_closing_a_channel_ends_what_is_on_it() {
    let mut lab = Lab::new();
    let (l, c, s) = lab.established();
    lab.server.call(Call::CloseChannel { channel: lab.cs }).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Disconnected, 0);
    let again = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(again, cp, &[]).unwrap();
    lab.client.next(lab.cc).is(again, CmEvent::Rejected, 8);
    // Their channel was closed under them.
    assert_eq!(lab.server.disconnect(s), Err(Errno::EBADF));
    assert_eq!(lab.server.destroy(l), Err(Errno::EBADF));
    assert_eq!(lab.server.call(Call::CloseChannel { channel: lab.cs }), Err(Errno::EBADF));
}

/// A client on its way, which changes its channel at each step.
#[test]
fn row_50_migrate_in_every_state() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let mut on = lab.cc;
    let c = lab.client.id(on);
    let moved = |lab: &mut Lab, from: &mut ChannelKey, id| {
        let to = lab.client.channel();
        lab.client.migrate(id, *from, to).unwrap();
        lab.client.quiet(*from, SECOND / 1000);
        *from = to;
    };
    moved(&mut lab, &mut on, c); // idle
    lab.client.bind(c, "10.0.0.1:0").unwrap();
    moved(&mut lab, &mut on, c); // bound
    lab.client.resolve_addr(c, None, "10.0.0.2:7", 100).unwrap();
    let to = lab.client.channel();
    lab.client.migrate(c, on, to).unwrap(); // resolving
    lab.client.quiet(on, SECOND);
    on = to;
    lab.client.next(on).is(c, CmEvent::AddrResolved, 0);
    moved(&mut lab, &mut on, c); // address resolved
    lab.client.resolve_route(c).unwrap();
    lab.client.next(on).is(c, CmEvent::RouteResolved, 0);
    moved(&mut lab, &mut on, c); // route resolved
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    moved(&mut lab, &mut on, c); // connecting
    let s = lab.server.requested(lab.cs, listener);
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(on).is(c, CmEvent::ConnectResponse, 0);
    lab.client.establish(c).unwrap();
    lab.server.next(lab.cs).is(s, CmEvent::Established, 0);
    moved(&mut lab, &mut on, c); // established
    lab.client.disconnect(c).unwrap();
    moved(&mut lab, &mut on, c); // disconnecting
    lab.server.next(lab.cs).is(s, CmEvent::Disconnected, 0);
    lab.server.disconnect(s).unwrap();
    lab.client.next(on).is(c, CmEvent::Disconnected, 0);
    moved(&mut lab, &mut on, c); // in time wait
    lab.client.next(on).is(c, CmEvent::TimewaitExit, 0);
    // A listener: what comes after the move comes on the new channel.
    let other = lab.server.channel();
    lab.server.next(lab.cs).is(s, CmEvent::TimewaitExit, 0);
    lab.server.migrate(listener, lab.cs, other).unwrap();
    let again = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(again, cp, &[]).unwrap();
    let s = lab.server.requested(other, listener);
    lab.server.quiet(lab.cs, SECOND);
    // The new id is on the listener's new channel.
    assert_eq!(lab.server.migrate(s, lab.cs, lab.cs), EINVAL);
    assert_eq!(lab.server.migrate(s, other, lab.cs), Ok(()));
}

fn an_unread_event_moves(wake_on_migrate: bool) {
    let mut lab = Lab::with(Config { wake_on_migrate, ..Config::default() });
    let to = lab.client.channel();
    let id = lab.client.id(lab.cc);
    lab.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    lab.fabric.advance_by(SECOND);
    assert!(readable(&lab.client, lab.cc) && !readable(&lab.client, to));
    lab.client.migrate(id, lab.cc, to).unwrap();
    assert!(!readable(&lab.client, lab.cc));
    assert_eq!(readable(&lab.client, to), wake_on_migrate);
    // The next event, of whatever id, wakes; both are there.
    let other = lab.client.id(to);
    lab.client.resolve_addr(other, None, "10.0.0.2:7", 100).unwrap();
    lab.fabric.advance_by(SECOND);
    assert!(readable(&lab.client, to));
    lab.client.next(to).is(id, CmEvent::AddrResolved, 0);
    assert!(readable(&lab.client, to));
    lab.client.next(to).is(other, CmEvent::AddrResolved, 0);
    assert!(!readable(&lab.client, to));
}

#[test]
fn row_51_a_moved_event_wakes_nobody() {
    an_unread_event_moves(false);
}

#[test]
fn a_moved_event_wakes_if_so_configured() {
    an_unread_event_moves(true);
}

#[test]
fn every_event_is_an_edge_except_a_moved_one() {
    let mut lab = Lab::new();
    let to = lab.client.channel();
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&poller, lab.client.device.fd(to).unwrap(), epoll::EventData::new_u64(1), interest).unwrap();
    let edges = |_: ()| {
        let mut seen = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 4];
        epoll::wait(poller.as_fd(), &mut seen, Some(&AT_ONCE)).unwrap()
    };
    let resolve = |side: &mut Side, on| {
        let id = side.id(on);
        side.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
        id
    };
    resolve(&mut lab.client, to);
    lab.fabric.advance_by(SECOND);
    assert_eq!(edges(()), 1);
    assert_eq!(edges(()), 0);
    // Still unread, and yet a second event is a second edge.
    resolve(&mut lab.client, to);
    lab.fabric.advance_by(SECOND);
    assert_eq!(edges(()), 1);
    let id = resolve(&mut lab.client, lab.cc);
    lab.fabric.advance_by(SECOND);
    lab.client.migrate(id, lab.cc, to).unwrap();
    assert_eq!(edges(()), 0);
    for _ in 0..3 {
        assert!(lab.client.fetch(to).is_some());
    }
    assert_eq!(lab.client.fetch(to), None);
    assert!(!readable(&lab.client, to));
}

#[test]
fn row_53_migrating_to_the_same_channel_reorders() {
    let mut lab = Lab::new();
    let (i, j) = (lab.client.id(lab.cc), lab.client.id(lab.cc));
    for id in [i, j] {
        lab.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    }
    lab.fabric.advance_by(SECOND);
    lab.client.migrate(i, lab.cc, lab.cc).unwrap();
    lab.client.next(lab.cc).is(j, CmEvent::AddrResolved, 0);
    lab.client.next(lab.cc).is(i, CmEvent::AddrResolved, 0);
}

#[test]
fn row_54_a_listener_migrates_with_an_unread_request() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let to = lab.server.channel();
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.fabric.advance_by(SECOND);
    lab.server.migrate(listener, lab.cs, to).unwrap();
    assert_eq!(lab.server.fetch(to), None);
    assert_eq!(lab.fabric.counters().swallowed, 1);
    lab.server.quiet(lab.cs, SECOND);
    lab.client.quiet(lab.cc, SECOND);
    let again = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(again, cp, &[]).unwrap();
    lab.server.requested(to, listener);
    lab.server.call(Call::CloseChannel { channel: lab.cs }).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::Rejected, 28);
    lab.server.destroy(listener).unwrap();
}

#[test]
fn row_56_a_channel_that_ends_with_the_migration() {
    let mut lab = Lab::new();
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let to = lab.server.channel();
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.fabric.advance_by(SECOND);
    // Out of synchronous mode: the private channel is closed within the call, and the new id with it.
    lab.server.migrate(listener, lab.cs, to).unwrap();
    lab.server.call(Call::CloseChannel { channel: lab.cs }).unwrap();
    let (seen, waited) = lab.client.next_timed(lab.cc);
    seen.is(c, CmEvent::Rejected, 28);
    assert!(waited < SECOND);
    assert_eq!(lab.server.fetch(to), None);
    let again = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(again, cp, &[]).unwrap();
    lab.server.requested(to, listener);
}

#[test]
fn row_46_an_empty_channel_has_nothing() {
    let mut lab = Lab::new();
    assert_eq!(lab.client.fetch(lab.cc), None);
    assert!(!readable(&lab.client, lab.cc));
}

#[test]
fn a_listener_migrates_well_without_the_kernels_bug() {
    let mut lab = Lab::with(Config { listener_migrate_bug: false, ..Config::default() });
    let listener = lab.server.listener(lab.cs, "10.0.0.2:7");
    let to = lab.server.channel();
    let c = lab.client.resolved(lab.cc, "10.0.0.2:7");
    let cp = lab.cp();
    lab.client.connect(c, cp, &[]).unwrap();
    lab.fabric.advance_by(SECOND);
    lab.server.migrate(listener, lab.cs, to).unwrap();
    let s = lab.server.requested(to, listener);
    lab.server.call(Call::CloseChannel { channel: lab.cs }).unwrap();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
}

#[test]
fn row_57_migrate_errors() {
    let mut lab = Lab::new();
    let (a, b) = (lab.client.channel(), lab.client.channel());
    let id = lab.client.id(a);
    let never = lab.client.fresh_channel();
    assert_eq!(lab.client.migrate(id, a, never), Err(Errno::EBADF));
    assert_eq!(lab.client.migrate(id, never, b), Err(Errno::ENOENT));
    assert_eq!(lab.client.migrate(id, b, a), EINVAL);
    assert_eq!(lab.client.migrate(id, a, b), Ok(()));
    assert_eq!(lab.client.migrate(id, a, b), EINVAL);
    assert_eq!(lab.client.destroy(id), Ok(()));
    assert_eq!(lab.client.migrate(id, b, a), Err(Errno::ENOENT));
}

#[test]
fn row_58_a_new_id_migrates_before_accept() {
    let mut lab = Lab::new();
    let (_, c, s) = lab.requested();
    let cs2 = lab.server.channel();
    lab.server.migrate(s, lab.cs, cs2).unwrap();
    let param = lab.cp();
    lab.server.accept(s, param, &[]).unwrap();
    lab.client.next(lab.cc).is(c, CmEvent::ConnectResponse, 0);
    lab.client.establish(c).unwrap();
    lab.server.next(cs2).is(s, CmEvent::Established, 0);
    lab.server.quiet(lab.cs, SECOND);
}

#[test]
fn row_48_unread_events_go_with_their_id() {
    let mut lab = Lab::new();
    let (i, j) = (lab.client.id(lab.cc), lab.client.id(lab.cc));
    for id in [i, j] {
        lab.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    }
    lab.fabric.advance_by(SECOND);
    let k = lab.client.id(lab.cc);
    let alone = lab.client.channel();
    lab.client.migrate(k, lab.cc, alone).unwrap();
    lab.client.resolve_addr(k, None, "10.0.0.2:7", 100).unwrap();
    lab.fabric.advance_by(SECOND);
    assert!(readable(&lab.client, alone));
    lab.client.destroy(k).unwrap();
    assert!(!readable(&lab.client, alone));
    lab.client.destroy(i).unwrap();
    lab.client.next(lab.cc).is(j, CmEvent::AddrResolved, 0);
    assert_eq!(lab.client.fetch(lab.cc), None);
    assert!(!readable(&lab.client, lab.cc));
}

#[test]
fn unknown_keys_are_errors() {
    let mut lab = Lab::new();
    let (channel, id) = (lab.client.fresh_channel(), lab.client.fresh_id());
    use cmid_proto::{Device, PortSpace};
    assert_eq!(lab.client.device.fetch(channel, id), Err(Errno::EBADF));
    assert!(lab.client.device.fd(channel).is_none());
    assert_eq!(lab.client.listen(id, 1), Err(Errno::ENOENT));
    assert_eq!(lab.client.destroy(id), Err(Errno::ENOENT));
    assert_eq!(lab.client.call(Call::CreateId { id, channel, port_space: PortSpace::Tcp }), Err(Errno::EBADF));
    assert_eq!(lab.client.device.local_addr(id), Err(Errno::ENOENT));
}

#[test]
fn descriptors_are_closed_with_their_channels() {
    let mut lab = Lab::new();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let channels: Vec<ChannelKey> = (0..200).map(|_| lab.client.channel()).collect();
    let open = count();
    for channel in channels {
        lab.client.call(Call::CloseChannel { channel }).unwrap();
    }
    // Other tests open and close some at the same time.
    assert!(count() + 100 < open, "{} of {open} left", count());
}
