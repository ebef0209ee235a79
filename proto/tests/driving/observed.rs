//! An observer receives every input and output of the core. A second core with the same inputs has the same
//! outputs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::drive::StepRecord;
use cmid_proto::{
    AckToken, Acks, Call, ChannelKey, CmEvent, Core, Drive, Errno, Error, Event, Fault, Flow, Limits, Next, Observer,
    Outcome, PortSpace, RawEvent, Refused, Step, Time,
};

use crate::begin::owned;
use crate::device::{PARAM, RecordingPoller, Script, addr, group_addr};
use crate::level::Levels;
use crate::start::Start;

/// An observer that repeats the steps on a second core.
#[derive(Debug)]
struct Twin {
    core: Core,
    /// The request whose calls are being made, and the outcomes of the first ones.
    start: Option<Start>,
    now: Time,
    outcomes: Vec<Outcome>,
    /// The core between the calls of that request.
    between: Option<Core>,
    /// The event that the last step has returned.
    taken: Option<Event>,
    ack_tokens: Vec<AckToken>,
    /// A channel that an event was read from stays readable; no step reports this.
    read_on: Option<ChannelKey>,
    observed_steps: Rc<RefCell<BTreeSet<&'static str>>>,
}

impl Observer for Twin {
    fn step(&mut self, observed: &StepRecord<'_>) {
        // A failed test drops its driver.
        if std::thread::panicking() {
            return;
        }
        if let Some(channel) = self.read_on.take() {
            self.core.handle_readable(channel);
        }
        let name = self.follow(observed);
        self.observed_steps.borrow_mut().insert(name);
        assert_eq!(self.between.as_ref().unwrap_or(&self.core), observed.core, "after {:?}", observed.step);
    }

    fn sibling(&self) -> Self {
        Twin::new()
    }
}

impl Twin {
    fn new() -> Self {
        Twin {
            core: Core::new(LIMITS),
            start: None,
            now: Time::ZERO,
            outcomes: Vec::new(),
            between: None,
            taken: None,
            ack_tokens: Vec::new(),
            read_on: None,
            observed_steps: Rc::default(),
        }
    }

    /// Begins a request. One without a call has its effect now.
    fn begin(&mut self, is_made: bool, start: Start) {
        if !is_made {
            return;
        }
        let Flow::Next(begun) = start.after(&mut self.core, self.now, &[]) else { return };
        if begun.call().is_some() {
            self.start = Some(start);
        } else {
            assert!(matches!(begun.end(Ok(())), Flow::Done(Ok(_))));
        }
    }

    /// Ends a call of the request, and compares the fault.
    fn end(&mut self, outcome: Outcome, fault: Option<Fault>) {
        self.outcomes.push(outcome);
        let start = self.start.take().unwrap();
        let mut copy = self.core.clone();
        let result = match start.after(&mut copy, self.now, &self.outcomes) {
            Flow::Next(begun) => {
                self.between = Some(begun.core().clone());
                None
            }
            Flow::Done(result) => Some(result),
        };
        match result {
            None => self.start = Some(start),
            Some(result) => {
                assert_eq!(if let Err(Error::Fault(fault)) = result { Some(fault) } else { None }, fault);
                self.core = copy;
                self.between = None;
                self.outcomes.clear();
            }
        }
    }

    /// Makes the same step on the second core and compares the results.
    fn follow(&mut self, observed: &StepRecord<'_>) -> &'static str {
        if self.start.is_none() {
            self.now = observed.now;
        }
        let core = &mut self.core;
        match observed.step {
            Step::Begin { limits } => {
                *core = Core::new(limits);
                "begin"
            }
            Step::OpenChannel { acks, result } => {
                assert_eq!(core.open_channel(acks).map(|(channel, _)| channel), result);
                self.begin(result.is_ok(), Start::OpenChannel(acks));
                "open channel"
            }
            Step::CloseChannel { channel, result } => {
                assert_eq!(core.close_channel(channel).map(drop), result);
                self.begin(result.is_ok(), Start::CloseChannel(channel));
                "close channel"
            }
            Step::CreateId { channel, port_space, result } => {
                assert_eq!(core.create_id(channel, port_space).map(|(id, _)| id), result);
                self.begin(result.is_ok(), Start::Create(channel, port_space));
                "create id"
            }
            Step::Submit { id, request, deadline, result } => {
                assert_eq!(core.would_refuse(observed.now, id, &request, deadline), result);
                self.begin(result.is_ok(), Start::Request(id, owned(request), deadline));
                "submit"
            }
            Step::Ack { owner, group, result } => {
                let is_it = |ack_token: &AckToken| (ack_token.owner(), ack_token.group()) == (owner, group);
                let at = self.ack_tokens.iter().position(is_it).unwrap();
                assert_eq!(
                    core.ack(self.ack_tokens.swap_remove(at)).map_err(|refused| Refused::from(&refused)),
                    result
                );
                "ack"
            }
            Step::Call { call, private_data } => {
                let start = self.start.take().unwrap_or(Start::Following);
                let mut copy = core.clone();
                let Flow::Next(begun) = start.after(&mut copy, self.now, &self.outcomes) else {
                    panic!("{call:?} is not due")
                };
                assert_eq!((begun.call().as_ref(), begun.private_data()), (Some(call), private_data));
                self.start = Some(start);
                "call"
            }
            Step::Outcome { outcome, fault, .. } => {
                self.end(outcome, fault);
                "outcome"
            }
            Step::Readable { channel } => {
                core.handle_readable(channel);
                "readable"
            }
            Step::WantsEvent { channel, child } => {
                assert_eq!(core.begin_read(channel), child);
                "look"
            }
            Step::Event { channel, event, to, result, reads_on } => {
                match to {
                    Some(to) => {
                        let (same, taken) = core.take_event(channel, &event, to);
                        assert_eq!(same, result);
                        self.taken = taken;
                    }
                    None => assert_eq!(core.handle_event(channel, event), result),
                }
                self.read_on = reads_on.then_some(channel);
                "event"
            }
            Step::Unreadable { channel, .. } => {
                core.handle_unreadable(channel);
                "unreadable"
            }
            Step::Child { id } => {
                assert_eq!(core.next_child().and_then(|begun| begun.call()), Some(Call::Destroy { id }));
                self.begin(true, Start::Child);
                "child"
            }
            Step::Iwarp { id } => {
                core.note_iwarp(id);
                "iwarp"
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
                core.handle_timeout(observed.now);
                "timeout"
            }
            Step::Deliver { channel, event } => {
                let mut same = self.taken.take().or_else(|| core.poll_event(channel)).unwrap();
                assert_eq!(&same, event);
                self.ack_tokens.extend(same.ack_token.take());
                "deliver"
            }
            Step::Release { id, result, .. } => {
                assert_eq!(core.release(id).is_ok(), result.is_ok());
                "release"
            }
            Step::Adopt { .. } => "adopt",
            Step::Yield => "rest",
            Step::End => "end",
        }
    }
}

const LIMITS: Limits = Limits { ids: 3, channels: 8, events: 4, groups: 1, ..Limits::SINGLE };

type Followed = Drive<Script, RecordingPoller, Twin>;

fn followed() -> Followed {
    Drive::with(Script::new(), RecordingPoller::default(), Twin::new(), LIMITS)
}

/// Queues an event at the device, and makes a turn.
fn report(drive: &mut Followed, raw: RawEvent<&'static [u8]>) {
    let on = drive.core().device_channel(raw.listener.unwrap_or(raw.id)).unwrap();
    drive.device_mut().events.push_back((on, raw));
    drive.readable(on);
    let _ = drive.run(8);
}

/// Takes and acks all events of a channel. Returns their number.
fn takes(drive: &mut Followed, on: ChannelKey) -> usize {
    let mut taken = 0;
    while let Some(event) = drive.next_event(on) {
        taken += 1;
        if let Some(ack_token) = event.ack_token {
            drive.ack(ack_token).unwrap();
        }
    }
    taken
}

#[test]
fn a_core_with_the_observed_inputs_has_the_same_outputs() {
    let mut drive = followed();
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let other = drive.open_channel(Acks::OnDelivery).unwrap();
    assert_eq!(drive.core().channels().collect::<Vec<_>>(), [channel, other]);
    // A call with private data.
    let id = drive.create_id(Some(other), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    report(&mut drive, RawEvent::new(id, CmEvent::AddrResolved));
    assert!(drive.next_event(other).is_some());
    drive.resolve_route(id, Time::NEVER).unwrap();
    report(&mut drive, RawEvent::new(id, CmEvent::RouteResolved));
    assert!(drive.next_event(other).is_some());
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    report(&mut drive, RawEvent::new(id, CmEvent::AddrChange));
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    drive.connect(id, PARAM, b"hello", Time::NEVER).unwrap();
    drive.destroy(id, Time::NEVER).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Udp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap();
    drive.resolve_addr(id, None, addr(2), Time::NEVER).unwrap_err();
    report(&mut drive, RawEvent { private_data: &b"told too"[..], ..RawEvent::new(id, CmEvent::AddrResolved) });
    assert_eq!(takes(&mut drive, channel), 1);
    drive.join(id, group_addr(9), false, Time::NEVER).unwrap();
    drive.join(id, group_addr(8), false, Time::NEVER).unwrap_err();
    report(&mut drive, RawEvent::new(id, CmEvent::ConnectError));
    assert_eq!(takes(&mut drive, channel), 0);
    // A deadline that passes, and a call that fails.
    let due = drive.within(Duration::from_secs(1));
    drive.resolve_route(id, due).unwrap();
    drive.set_now(due);
    assert!(matches!(drive.run(8), Next::Deliver));
    drive.device_mut().fails = Some(("migrate_id", Errno::ENOMEM));
    assert_eq!(takes(&mut drive, channel), 1);
    drive.migrate(id, Some(other), Time::NEVER).unwrap_err();
    drive.device_mut().unreadable = Some(Errno::EIO);
    drive.readable(channel);
    assert!(drive.next_event(channel).is_none());
    drive.pause_channel(other).unwrap();
    drive.resume_channel(other).unwrap();
    assert_eq!(drive.run(8), Next::Deliver);
    while drive.next_event(other).is_some() {}
    // At the limit on ids the channel of a listener waits.
    let listener = drive.create_id(None, PortSpace::Tcp).unwrap();
    drive.listen(listener, 1).unwrap();
    let released_id = drive.create_id(None, PortSpace::Tcp).unwrap();
    report(&mut drive, RawEvent::new(listener, CmEvent::AddrChange));
    let released_id = drive.release(released_id).unwrap();
    drive.release(id).unwrap_err();
    let _ = drive.run(8);
    drive.destroy(listener, Time::NEVER).unwrap();
    drive.destroy(id, Time::NEVER).unwrap();
    drive.close_channel(channel).unwrap();
    let observed = [
        "ack",
        "begin",
        "call",
        "close channel",
        "create id",
        "deliver",
        "event",
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
    assert_eq!(drive.observer().observed_steps.borrow().iter().copied().collect::<Vec<_>>(), observed);
    drop(released_id);
}

#[test]
fn it_observes_ids_that_are_destroyed_after_their_listener() {
    let mut drive =
        Drive::with(Script::new(), RecordingPoller::default(), Twin::new(), Limits { ids: 32, events: 32, ..LIMITS });
    let [here, there] = [(); 2].map(|()| drive.open_channel(Acks::OnDelivery).unwrap());
    let listener = drive.create_id(Some(here), PortSpace::Tcp).unwrap();
    drive.listen(listener, 0).unwrap();
    let device_channel = drive.core().device_channel(listener).unwrap();
    drive.device_mut().requests = Some((device_channel, listener, 20));
    drive.readable(device_channel);
    (0..64).for_each(|_| assert_ne!(drive.run(64), Next::Again));
    drive.migrate(listener, Some(there), Time::NEVER).unwrap();
    let _ = drive.run(64);
    assert!(!drive.observer().observed_steps.borrow().contains("child"), "nothing is done for them");
    assert_eq!(takes(&mut drive, there), 20);
    drive.device_mut().requests = Some((device_channel, listener, 20));
    drive.readable(device_channel);
    (0..64).for_each(|_| assert_ne!(drive.run(64), Next::Again));
    drive.destroy(listener, Time::NEVER).unwrap();
    let _ = drive.run(64);
    assert!(drive.observer().observed_steps.borrow().contains("child"));
}

#[test]
fn a_run_without_work_is_observed() {
    let mut drive = followed();
    assert_eq!(drive.run(8), Next::Wait(None));
    assert!(drive.observer().observed_steps.borrow().contains("rest"));
}

#[test]
fn it_observes_deadlines_that_pass_and_the_end_and_no_others() {
    let mut drive = followed();
    let observed_steps = Rc::clone(&drive.observer().observed_steps);
    let has_step = |step| observed_steps.borrow().contains(step);
    assert_ne!(drive.run(8), Next::Again);
    assert!(!has_step("timeout"), "no deadline has passed");
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time(1)).unwrap();
    drive.set_now(Time(1));
    let _ = drive.run(8);
    assert!(has_step("timeout") && !has_step("end"));
    drop(drive);
    assert!(has_step("end"));
}

#[test]
fn it_observes_each_read_with_a_level_triggered_poller() {
    let mut drive = Drive::with(Script::new(), Levels::default(), Twin::new(), LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    for _ in 0..3 {
        drive.device_mut().events.push_back((channel, RawEvent::new(id, CmEvent::AddrChange)));
        drive.readable(channel);
        assert_eq!(drive.run(8), Next::Deliver);
        // The step compares both cores.
        assert_eq!(drive.next_event(channel).unwrap().id, id);
    }
}

/// Counts the steps, and the observers that come from it.
#[derive(Debug, Default)]
struct Counted {
    steps: usize,
    generation: usize,
}

impl Observer for Counted {
    fn step(&mut self, _: &StepRecord<'_>) {
        self.steps += 1;
    }

    fn sibling(&self) -> Self {
        Counted { steps: 0, generation: self.generation + 1 }
    }
}

#[test]
fn a_pair_is_two_observers_and_none_is_no_observer() {
    let observers = (Counted::default(), (Some(Counted::default()), None::<Counted>));
    let mut drive = Drive::with(Script::new(), (), observers, LIMITS);
    drive.open_channel(Acks::OnDelivery).unwrap();
    let (one, (two, none)) = drive.observer();
    // The begin, the request, its call and its outcome.
    assert_eq!((one.steps, two.as_ref().map(|two| two.steps), none.is_none()), (4, Some(4), true));
    let (one, (two, none)) = drive.observer().sibling();
    assert_eq!((one.generation, two.map(|two| two.generation), none.is_none()), (1, Some(1), true));
}
