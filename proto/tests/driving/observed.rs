//! A device that listens hears of everything that goes into the core and comes out of it: a second core that is given the
//! same says the same.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::{
    Acks, Around, ChannelKey, CmEvent, Core, Device, Drive, Errno, Heard, IdKey, Limits, Outcome, Pollable, PortSpace,
    RawEvent, Receipt, Refused, Rest, Step, Time, Token, Turn, Watched,
};

use crate::device::{PARAM, Script, Waiting, addr};

/// Around the device: a second core, and what it was told.
#[derive(Debug)]
struct Twin {
    device: Script,
    core: Core,
    token: Option<Token>,
    receipts: Vec<Receipt>,
    /// A channel that an event was read from stays readable, which is not told.
    read_on: Option<ChannelKey>,
    /// The kinds of steps so far.
    told: Rc<RefCell<BTreeSet<&'static str>>>,
}

impl Around for Twin {
    type Inner = Script;
    type Handle = u32;

    const LISTENS_TOO: bool = true;

    fn inner(&self) -> &Script {
        &self.device
    }

    fn inner_mut(&mut self) -> &mut Script {
        &mut self.device
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<u32, Errno> {
        self.device.release(id, channel)
    }

    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: u32) -> Outcome {
        self.device.adopt(id, channel, handle)
    }

    fn on_hear(&mut self, heard: &Heard<'_>) {
        // A test that has failed drops its driver, which tells of that: a second panic would hide the first.
        if std::thread::panicking() {
            return;
        }
        if let Some(channel) = self.read_on.take() {
            self.core.handle_readable(channel);
        }
        let name = self.follow(heard);
        self.told.borrow_mut().insert(name);
        assert_eq!(self.core, *heard.core, "after {:?}", heard.step);
        // The one inside may listen too.
        self.device.hear(heard);
    }
}

impl Pollable for Twin {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        self.device.fd(on)
    }

    fn sibling(&self) -> Self {
        Twin::new()
    }
}

impl Twin {
    fn new() -> Self {
        Twin {
            device: Script::new(),
            core: Core::new(LIMITS),
            token: None,
            receipts: Vec::new(),
            read_on: None,
            told: Rc::default(),
        }
    }

    /// Does the same, and looks at what comes of it.
    fn follow(&mut self, heard: &Heard<'_>) -> &'static str {
        let core = &mut self.core;
        match heard.step {
            Step::Begin { limits } => {
                *core = Core::new(limits);
                "begin"
            }
            Step::OpenChannel { acks, result } => {
                assert_eq!(core.open_channel(acks), result);
                "open channel"
            }
            Step::CloseChannel { channel, result } => {
                assert_eq!(core.close_channel(channel), result);
                "close channel"
            }
            Step::CreateId { channel, port_space, result } => {
                assert_eq!(core.create_id(channel, port_space), result);
                "create id"
            }
            Step::Submit { id, request, deadline, result } => {
                assert_eq!(core.submit(heard.now, id, request, deadline), result);
                "submit"
            }
            Step::Join { id, addr, send_only, deadline, result } => {
                assert_eq!(core.join(heard.now, id, addr, send_only, deadline), result);
                "join"
            }
            Step::Ack { owner, group, result } => {
                let is_it = |receipt: &Receipt| (receipt.owner(), receipt.group()) == (owner, group);
                let at = self.receipts.iter().position(is_it).unwrap();
                assert_eq!(core.ack(self.receipts.swap_remove(at)).map_err(Refused::from), result);
                "ack"
            }
            Step::Call { call, private_data } => {
                let (token, same) = core.poll_call().unwrap();
                assert_eq!((&same, core.call_data(token)), (call, private_data));
                self.token = Some(token);
                "call"
            }
            Step::Outcome { outcome, fault, .. } => {
                assert_eq!(core.handle_outcome(self.token.take().unwrap(), outcome).err(), fault);
                "outcome"
            }
            Step::Readable { channel } => {
                core.handle_readable(channel);
                "readable"
            }
            Step::Look { channel, child } => {
                assert_eq!(core.poll_readable(), Some(channel));
                assert_eq!(core.wants_event(channel), child);
                "look"
            }
            Step::Event { channel, event, result, reads_on } => {
                assert_eq!(core.handle_event(channel, event), result);
                self.read_on = reads_on.then_some(channel);
                "event"
            }
            Step::Unreadable { channel, .. } => {
                core.handle_unreadable(channel);
                "unreadable"
            }
            Step::Child { id } => {
                assert_eq!(core.poll_child(), Some(id));
                "child"
            }
            Step::PauseChannel { channel, result } => {
                assert_eq!(core.pause_channel(channel), result);
                "pause"
            }
            Step::ResumeChannel { channel, result } => {
                assert_eq!(core.resume_channel(channel), result);
                "resume"
            }
            Step::WaitForRoom { channel } => {
                core.wait_for_room(channel);
                "wait for room"
            }
            Step::Timeout => {
                core.handle_timeout(heard.now);
                "timeout"
            }
            Step::Deliver { channel, event } => {
                let mut same = core.poll_event(channel).unwrap();
                assert_eq!(&same, event);
                self.receipts.extend(same.receipt.take());
                "deliver"
            }
            Step::Release { id, result } => {
                assert_eq!(core.release(id).is_ok(), result.is_ok());
                "release"
            }
            Step::Adopt { .. } => "adopt",
            Step::Rest => "rest",
            Step::End => "end",
        }
    }
}

const LIMITS: Limits = Limits { ids: 3, channels: 8, events: 4, groups: 1, ..Limits::SINGLE };

/// The poller's device is around the one that listens, and passes on what it hears.
type Followed = Drive<Watched<Twin, Waiting>>;

fn followed() -> Followed {
    Drive::new(Watched::new(Twin::new(), Waiting::default()), LIMITS)
}

/// The device says something, and a turn reads it.
fn says(drive: &mut Followed, raw: RawEvent<'static>) {
    let on = drive.core().line(raw.listener.unwrap_or(raw.id)).unwrap();
    drive.device_mut().device.events.push_back((on, raw));
    drive.readable(on);
    let _ = drive.turn(8);
}

/// All events of a channel are taken, and dealt with.
fn takes(drive: &mut Followed, on: ChannelKey) -> usize {
    let mut taken = 0;
    while let Some(event) = drive.next_event(on) {
        taken += 1;
        if let Some(receipt) = event.receipt {
            drive.ack(receipt).unwrap();
        }
    }
    taken
}

#[test]
fn a_core_that_is_given_what_a_listening_device_hears_says_the_same() {
    let mut drive = followed();
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    assert_eq!(drive.core().channel_keys().collect::<Vec<_>>(), [channel, other]);
    // A call with private data.
    let id = drive.create_id(Some(other), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    says(&mut drive, RawEvent::new(id, CmEvent::AddrResolved));
    drive.resolve_route(id, Time::NEVER).unwrap();
    says(&mut drive, RawEvent::new(id, CmEvent::RouteResolved));
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    drive.connect(id, PARAM, b"hello", Time::NEVER).unwrap();
    drive.destroy(id, Time::NEVER).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Udp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap_err();
    says(&mut drive, RawEvent { private_data: b"told too", ..RawEvent::new(id, CmEvent::AddrResolved) });
    drive.join(id, addr(9), false, Time::NEVER).unwrap();
    drive.join(id, addr(8), false, Time::NEVER).unwrap_err();
    says(&mut drive, RawEvent::new(id, CmEvent::ConnectError));
    // A deadline that passes, and a call that fails.
    let due = drive.within(Duration::from_secs(1));
    drive.resolve_route(id, due).unwrap();
    drive.set_now(due);
    assert!(matches!(drive.settle(8), Rest::Look));
    drive.device_mut().device.fails = Some(("migrate_id", Errno::ENOMEM));
    assert_eq!(takes(&mut drive, channel), 2);
    drive.migrate(id, Some(other), Time::NEVER).unwrap_err();
    drive.device_mut().device.unreadable = Some(Errno::EIO);
    drive.readable(channel);
    assert_eq!(drive.turn(8), Turn::More);
    drive.pause_channel(other).unwrap();
    drive.resume_channel(other).unwrap();
    let _ = drive.settle(8);
    // At the limit on ids a listener's channel waits.
    let listener = drive.create_id(None, PortSpace::Tcp).unwrap();
    drive.listen(listener, 1).unwrap();
    let loose = drive.create_id(None, PortSpace::Tcp).unwrap();
    says(&mut drive, RawEvent::new(listener, CmEvent::AddrChange));
    let loose = drive.release(loose).unwrap();
    drive.release(id).unwrap_err();
    let _ = drive.settle(8);
    drive.destroy(listener, Time::NEVER).unwrap();
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    let heard = [
        "ack",
        "begin",
        "call",
        "close channel",
        "create id",
        "deliver",
        "event",
        "join",
        "look",
        "open channel",
        "outcome",
        "pause",
        "readable",
        "release",
        "rest",
        "resume",
        "submit",
        "timeout",
        "unreadable",
        "wait for room",
    ];
    assert_eq!(drive.device().told.borrow().iter().copied().collect::<Vec<_>>(), heard);
    drop(loose);
}

#[test]
fn it_hears_of_ids_that_are_destroyed_after_their_listener() {
    let mut drive = Drive::new(Watched::new(Twin::new(), Waiting::default()), Limits { ids: 32, events: 32, ..LIMITS });
    let [here, there] = [(); 2].map(|()| drive.open_channel(Acks::OnDelivery).unwrap());
    let listener = drive.create_id(Some(here), PortSpace::Tcp).unwrap();
    drive.listen(listener, 0).unwrap();
    let line = drive.core().line(listener).unwrap();
    drive.device_mut().device.requests = Some((line, listener, 20));
    drive.readable(line);
    while drive.settle(64) != Rest::Until(None) {}
    drive.migrate(listener, Some(there), Time::NEVER).unwrap();
    let _ = drive.settle(64);
    assert!(!drive.device().told.borrow().contains("child"), "nothing is done for them");
    assert_eq!(takes(&mut drive, there), 20);
    drive.device_mut().device.requests = Some((line, listener, 20));
    drive.readable(line);
    while drive.settle(64) != Rest::Until(None) {}
    drive.destroy(listener, Time::NEVER).unwrap();
    let _ = drive.settle(64);
    assert!(drive.device().told.borrow().contains("child"));
}

#[test]
fn a_listening_device_hears_of_deadlines_that_pass_and_of_the_end_and_of_no_others() {
    let mut drive = followed();
    let told = Rc::clone(&drive.device().told);
    let hears = |step| told.borrow().contains(step);
    assert_eq!(drive.turn(8), Turn::Idle);
    assert!(!hears("timeout"), "no deadline has passed");
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time(1)).unwrap();
    drive.set_now(Time(1));
    let _ = drive.turn(8);
    assert!(hears("timeout") && !hears("end"));
    drop(drive);
    assert!(hears("end"));
}
