//! Lines that occur only if there is no room, or if a channel cannot be read.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use cmid_proto::{Acks, ChannelKey, CmEvent, Drive, Errno, IdKey, Limits, Next, PortSpace, Time};
use cmid_trace::{Memory, Recording, Trace, replay};
use common::Given;

/// Records the drive while `steps` runs, replays the trace, and returns it.
fn recorded(limits: Limits, steps: impl FnOnce(&mut Drive<Given, (), Trace>)) -> String {
    let memory = Memory::default();
    let trace = Trace::new(Arc::new(memory.clone())).unwrap();
    let mut drive = Drive::with(Given::default(), (), trace, limits);
    steps(&mut drive);
    let live = drive.core().clone();
    drop(drive);
    let text = memory.texts().swap_remove(0);
    let recordings = [Recording::read(&text[..]).unwrap()];
    let cores = replay(&recordings, |_, _| {}).unwrap();
    assert!(recordings[0].is_whole());
    assert!(cores[0] == live);
    String::from_utf8(text).unwrap()
}

/// A listener with this number of unread requests.
fn listener(drive: &mut Drive<Given, (), Trace>, requests: usize) -> (IdKey, ChannelKey) {
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.bind(id, "10.0.0.1:7471".parse().unwrap()).unwrap();
    drive.listen(id, 8).unwrap();
    let line = drive.core().device_channel(id).unwrap();
    drive.device_mut().events.extend(vec![(line, Ok((id, CmEvent::ConnectRequest))); requests]);
    drive.readable(line);
    (id, channel)
}

#[test]
fn no_room_for_another_id() {
    let text = recorded(Limits { ids: 2, ..Limits::SINGLE }, |drive| {
        let (_, channel) = listener(drive, 2);
        (0..8).for_each(|_| assert_ne!(drive.run(8), Next::Again));
        let first = drive.next_event(channel).unwrap();
        assert!(drive.next_event(channel).is_none());
        drive.ack(first.ack_token.unwrap()).unwrap();
        drive.destroy(first.id, Time::NEVER).unwrap();
        assert_eq!(drive.run(8), Next::Deliver);
        let _ = drive.next_event(channel).unwrap();
    });
    assert!(text.contains("{\"in\":{\"wait_for_room\":\"ch1\"}}"), "{text}");
    assert!(text.contains("\"data\":\"6c6574206d6520696e/11\""), "{text}");
}

#[test]
fn no_room_for_another_event() {
    let text = recorded(Limits { events: 1, ..Limits::SINGLE }, |drive| {
        let (_, channel) = listener(drive, 2);
        (0..8).for_each(|_| assert_ne!(drive.run(8), Next::Again));
        let _ = drive.next_event(channel).unwrap();
        (0..8).for_each(|_| assert_ne!(drive.run(8), Next::Again));
        // The event is not read, so the end line contains it.
    });
    assert!(text.contains("{\"in\":{\"read\":\"ch1\"}}"), "{text}");
    assert!(text.lines().last().unwrap().contains("ch0: CONNECT_REQUEST on id2, from id0, data "), "{text}");
}

#[test]
fn a_channel_that_cannot_be_read_and_an_id_that_is_lost() {
    let text = recorded(Limits::SINGLE, |drive| {
        let (listener, channel) = listener(drive, 0);
        let line = drive.core().device_channel(listener).unwrap();
        drive.device_mut().events.push_back((line, Err(Errno(4000))));
        let _rest = drive.run(8);
        assert!(drive.next_fault().is_some());
        let id = drive.create_id(None, PortSpace::Udp).unwrap();
        drive.release(id).unwrap_err();
        let kept = drive.create_id(Some(channel), PortSpace::Udp).unwrap();
        drive.release(kept).unwrap_err();
    });
    assert!(text.contains("{\"in\":{\"unreadable\":{\"on\":\"ch1\",\"errno\":\"errno 4000\"}}}"), "{text}");
    assert!(text.contains("\"errno\":\"EIO\"}},\"out\":\"fault: release on id1 failed: EIO\"}"), "{text}");
    assert!(
        text.contains("\"out\":\"refused: release on id1.2 while idle: the id is not in synchronous mode\""),
        "{text}"
    );
}

#[test]
fn the_number_of_a_core_is_that_of_its_keys() {
    let text = recorded(Limits { core: Some((1 << 12) + 3), ..Limits::SINGLE }, |drive| {
        drive.open_channel(Acks::Explicit).unwrap();
    });
    assert!(text.contains("s3/ch0"), "{text}");
    assert_eq!(Recording::read(text.as_bytes()).unwrap().core(), 3);
}
