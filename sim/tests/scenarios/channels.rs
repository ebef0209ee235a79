//! Section "channels, ack, migrate" of the conformance scenarios.

use std::os::fd::AsFd;

use cmid_proto::{Call, ChannelKey, CmEvent, Errno, Pollable};
use cmid_sim::Config;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;

use crate::common::{EINVAL, Env, SECOND, Side};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn readable(side: &Side, channel: ChannelKey) -> bool {
    let fd = side.device.fd(channel).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&AT_ONCE)).unwrap() == 1
}

#[test]
fn behaviour_47_closing_a_channel_ends_what_is_on_it() {
    let mut env = Env::new();
    let (l, c, s) = env.established();
    env.server.call(Call::CloseChannel { channel: env.cs }).unwrap();
    env.client.next(env.cc).is(c, CmEvent::Disconnected, 0);
    let again = env.client.resolved(env.cc, "10.0.0.2:7");
    env.connect(again, &[]);
    env.client.next(env.cc).is(again, CmEvent::Rejected, 8);
    // The channel of these ids is closed.
    assert_eq!(env.server.disconnect(s), Err(Errno::EBADF));
    assert_eq!(env.server.destroy(l), Err(Errno::EBADF));
    assert_eq!(env.server.call(Call::CloseChannel { channel: env.cs }), Err(Errno::EBADF));
}

fn an_unread_event_moves(wake_on_migrate: bool) {
    let mut env = Env::with(Config { wake_on_migrate, ..Config::default() });
    let to = env.client.channel();
    let id = env.client.looks_up(env.cc, "10.0.0.2:7");
    env.fabric.advance_by(SECOND);
    assert!(readable(&env.client, env.cc) && !readable(&env.client, to));
    env.client.migrate(id, env.cc, to).unwrap();
    assert!(!readable(&env.client, env.cc));
    assert_eq!(readable(&env.client, to), wake_on_migrate);
    // The next event of any id wakes the reader; both events are there.
    let other = env.client.id(to);
    env.client.resolve_addr(other, None, "10.0.0.2:7", 100).unwrap();
    env.fabric.advance_by(SECOND);
    assert!(readable(&env.client, to));
    env.client.next(to).is(id, CmEvent::AddrResolved, 0);
    assert!(readable(&env.client, to));
    env.client.next(to).is(other, CmEvent::AddrResolved, 0);
    assert!(!readable(&env.client, to));
}

#[test]
fn behaviour_51_a_moved_event_wakes_nobody() {
    an_unread_event_moves(false);
}

#[test]
fn a_moved_event_wakes_if_so_configured() {
    an_unread_event_moves(true);
}

#[test]
fn every_event_is_an_edge_except_a_moved_one() {
    let mut env = Env::new();
    let to = env.client.channel();
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&poller, env.client.device.fd(to).unwrap(), epoll::EventData::new_u64(1), interest).unwrap();
    let edges = |_: ()| {
        let mut seen = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 4];
        epoll::wait(poller.as_fd(), &mut seen, Some(&AT_ONCE)).unwrap()
    };
    let resolve = |side: &mut Side, on| side.looks_up(on, "10.0.0.2:7");
    resolve(&mut env.client, to);
    env.fabric.advance_by(SECOND);
    assert_eq!(edges(()), 1);
    assert_eq!(edges(()), 0);
    // The first event is still unread, but a second event is a second edge.
    resolve(&mut env.client, to);
    env.fabric.advance_by(SECOND);
    assert_eq!(edges(()), 1);
    let id = resolve(&mut env.client, env.cc);
    env.fabric.advance_by(SECOND);
    env.client.migrate(id, env.cc, to).unwrap();
    assert_eq!(edges(()), 0);
    for _ in 0..3 {
        assert!(env.client.fetch(to).is_some());
    }
    assert_eq!(env.client.fetch(to), None);
    assert!(!readable(&env.client, to));
}

#[test]
fn behaviour_57_migrate_errors() {
    let mut env = Env::new();
    let (a, b) = (env.client.channel(), env.client.channel());
    let id = env.client.id(a);
    let never = env.client.fresh_channel();
    assert_eq!(env.client.migrate(id, a, never), Err(Errno::EBADF));
    assert_eq!(env.client.migrate(id, never, b), Err(Errno::ENOENT));
    assert_eq!(env.client.migrate(id, b, a), EINVAL);
    assert_eq!(env.client.migrate(id, a, b), Ok(()));
    assert_eq!(env.client.migrate(id, a, b), EINVAL);
    assert_eq!(env.client.destroy(id), Ok(()));
    assert_eq!(env.client.migrate(id, b, a), Err(Errno::ENOENT));
}

#[test]
fn behaviour_48_unread_events_go_with_their_id() {
    let mut env = Env::new();
    let (i, j) = (env.client.id(env.cc), env.client.id(env.cc));
    for id in [i, j] {
        env.client.resolve_addr(id, None, "10.0.0.2:7", 100).unwrap();
    }
    env.fabric.advance_by(SECOND);
    let k = env.client.id(env.cc);
    let alone = env.client.channel();
    env.client.migrate(k, env.cc, alone).unwrap();
    env.client.resolve_addr(k, None, "10.0.0.2:7", 100).unwrap();
    env.fabric.advance_by(SECOND);
    assert!(readable(&env.client, alone));
    env.client.destroy(k).unwrap();
    assert!(!readable(&env.client, alone));
    env.client.destroy(i).unwrap();
    env.client.next(env.cc).is(j, CmEvent::AddrResolved, 0);
    assert_eq!(env.client.fetch(env.cc), None);
    assert!(!readable(&env.client, env.cc));
}

#[test]
fn unknown_keys_are_errors() {
    let mut env = Env::new();
    let (channel, id) = (env.client.fresh_channel(), env.client.fresh_id());
    use cmid_proto::{Device, PortSpace};
    assert_eq!(env.client.device.fetch(channel, id), Err(Errno::EBADF));
    assert!(env.client.device.fd(channel).is_none());
    assert_eq!(env.client.listen(id, 1), Err(Errno::ENOENT));
    assert_eq!(env.client.destroy(id), Err(Errno::ENOENT));
    assert_eq!(env.client.call(Call::CreateId { id, channel, port_space: PortSpace::Tcp }), Err(Errno::EBADF));
    assert_eq!(env.client.device.local_addr(id), Err(Errno::ENOENT));
}

#[test]
fn descriptors_are_closed_with_their_channels() {
    let mut env = Env::new();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let channels: Vec<ChannelKey> = (0..200).map(|_| env.client.channel()).collect();
    let open = count();
    for channel in channels {
        env.client.call(Call::CloseChannel { channel }).unwrap();
    }
    // Other tests open and close some at the same time.
    assert!(count() + 100 < open, "{} of {open} left", count());
}

/// A closed channel ends its ids in the order in which they came to it (`ucma_close`, `ucma_migrate_id`).
#[test]
fn a_migrated_id_is_the_last_of_its_channel() {
    let mut env = Env::new();
    let listener = env.server.listener(env.cs, "10.0.0.2:7");
    let (moved, moved_peer) = env.requested_on(listener);
    let (_, peer) = env.requested_on(listener);
    env.client.migrate(moved, env.cc, env.cc).unwrap();
    for new in [moved_peer, peer] {
        env.accept(new, &[]);
    }
    env.fabric.advance_by(SECOND);
    env.client.call(Call::CloseChannel { channel: env.cc }).unwrap();
    for new in [peer, moved_peer] {
        env.server.next(env.cs).is(new, CmEvent::Rejected, 28);
    }
}
