//! The n-th call of a side's device fails, for each n, and the call behind it too: whatever fails, both sides end, nothing is
//! left, and the error is told, once, by its name.

use cmid_proto::datapath::prelude::*;
use cmid_proto::handshake::Session;
use cmid_proto::{Acks, Drive, Errno, Fault, Limits, State, Time, Transport};

use crate::world::{SOON, Side, World, within};

/// What a session lives through.
#[derive(Clone, Copy, Debug)]
struct Life {
    transport: Transport,
    /// The client is in synchronous mode.
    is_sync: bool,
    /// The client moves to another driver.
    moves: bool,
    /// Whose device fails, and who disconnects: 0 is the client.
    fails: usize,
    ends: usize,
}

/// What a side was told.
#[derive(Debug, Default)]
struct Told {
    errors: Vec<String>,
    faults: Vec<Fault>,
}

impl Told {
    /// Returns the value, or notes the error.
    fn note<T, E: ToString>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.errors.push(error.to_string())).ok()
    }
}

/// The client begins.
fn connect(client: &mut Side, is_sync: bool, told: &mut Told) {
    let channel = (!is_sync).then_some(client.channel);
    let address = "10.0.0.2:7471".parse().unwrap();
    client.session = told.note(Session::connect(&mut client.drive, channel, address, &within(SOON / 8)));
    if let Some(channel) = client.session.as_ref().and_then(|it| client.drive.core().channel(it.id())) {
        client.channel = channel;
    }
}

/// Moves the connection to another driver, if that is possible.
fn moves(client: &mut Side, told: &mut Told) {
    let Some(session) = client.session.take() else { return };
    let released = match session.release(&mut client.drive) {
        Ok(released) => released,
        Err(failed) => {
            told.errors.push(failed.to_string());
            client.session = Some(failed.given);
            return;
        }
    };
    let mut other = Drive::new(client.drive.device().sibling(), Limits::default());
    other.set_now(client.drive.now());
    let Some(channel) = told.note(other.open_channel(Acks::Explicit)) else { return };
    if let Some(session) = told.note(released.adopt(&mut other, channel)) {
        (client.drive, client.channel, client.session) = (other, channel, Some(session));
    }
}

/// Lives through it. Returns what both sides were told, and the number of calls that have failed.
fn live(life: Life, faults: &[(u32, Errno)]) -> ([Told; 2], usize) {
    let World { fabric, mut sides } = World::unconnected(life.transport);
    let mut told: [Told; 2] = Default::default();
    let [client, server] = &mut sides;
    client.drive.destroy(client.id, Time::NEVER).unwrap();
    let hosts = [&client.host, &server.host].map(Clone::clone);
    faults.iter().for_each(|&(after, errno)| hosts[life.fails].fail_call(after, errno));
    connect(client, life.is_sync, &mut told[0]);
    let (mut is_moved, mut has_ended) = (!life.moves, false);
    for turns in 0.. {
        assert!(turns < 1000, "{life:?} {faults:?}: it does not end: {told:?}");
        let faults_before = told.iter().map(|told| told.faults.len()).sum::<usize>();
        for (side, told) in sides.iter_mut().zip(&mut told) {
            let turned = side.turn(&fabric, SOON / 8);
            told.note(turned);
            told.faults.extend(std::iter::from_fn(|| side.drive.next_fault()));
        }
        if sides.iter().all(Side::is_open) && !std::mem::replace(&mut is_moved, true) {
            moves(&mut sides[0], &mut told[0]);
        } else if sides.iter().all(Side::is_open) && is_moved && !has_ended {
            let Side { session, drive, .. } = &mut sides[life.ends];
            has_ended = told[life.ends].note(session.as_mut().unwrap().disconnect(drive)).is_some();
        }
        let due = sides.iter().filter_map(|side| side.drive.next_timeout()).chain(fabric.next_due()).min();
        // A read that has failed is repeated.
        match due {
            _ if told.iter().map(|told| told.faults.len()).sum::<usize>() > faults_before => {}
            _ if !has_ended && sides.iter().all(Side::is_open) => {}
            Some(due) => fabric.advance_to(due.max(fabric.now())),
            None => break,
        }
    }
    for side in &mut sides {
        side.drive.core().check();
        // Whose destroy has failed, too.
        let failed = |of: &Side, id| of.drive.core().state(id) == Some(State::Failed) && faults.len() == 2;
        let left: Vec<_> = side.drive.core().ids().filter(|&id| id != side.id).collect();
        for id in left {
            assert!(failed(side, id), "{life:?} {faults:?}: {:?}, {told:?}", side.drive.core().state(id));
            side.drive.destroy(id, Time::NEVER).unwrap();
        }
        let Some(session) = side.session.take() else { continue };
        assert!(session.is_over(), "{life:?} {faults:?}: {told:?}");
        if let Some(connected) = session.into_connected() {
            let (parts, mr) = connected.attached;
            drop(parts);
            assert_eq!(mr.deregister().unwrap().buffer.len(), 64);
        }
    }
    (told, faults.len() - hosts[life.fails].calls_to_fail())
}

/// Each life, with one failure and with two calls that fail one after the other: the second one is often the destroy which
/// follows.
#[test]
fn each_call_may_fail_and_the_next_one_too() {
    for number in 0..64 {
        let [is_sync, moves, is_double] = [1, 2, 32].map(|bit| number & bit != 0);
        let [fails, ends] = [4, 8].map(|bit| usize::from(number & bit != 0));
        let transport = if number & 16 == 0 { Transport::InfiniBand } else { Transport::Iwarp };
        let life = Life { transport, is_sync, moves, fails, ends };
        let mut untold = 0;
        for calls in 0.. {
            let errno = [Errno::ENOMEM, Errno::EINVAL, Errno::EIO, Errno::ENODEV][calls as usize % 4];
            let faults = [(calls, errno), (0, errno)];
            let (told, failed) = live(life, &faults[..1 + usize::from(is_double)]);
            let Told { errors, faults } = &told[fails];
            if failed == 0 {
                // In silence fails the second disconnect of a teardown, as the first of two calls or the second, and the destroy
                // after a release that has failed.
                assert!(
                    calls > 15 && untold <= 1 + usize::from(is_double) * (1 + usize::from(moves)),
                    "{life:?}: {untold} of {calls} calls"
                );
                break;
            }
            let names = errors.iter().filter(|text| text.contains(&format!(": {errno}"))).count() + faults.len();
            assert!(names == errors.len() + faults.len() && names <= failed, "{life:?} {calls}: {told:?}");
            untold += failed - names;
        }
    }
}
