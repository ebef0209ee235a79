//! An observer receives every input and output of the core. That a second core with the same inputs has the same outputs,
//! `tests/conformance/tests/traced.rs` and `trace/tests/` show.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cmid_proto::drive::StepRecord;
use cmid_proto::{
    Acks, ChannelKey, CmEvent, Drive, Errno, Limits, Next, Observer, Poller, PortSpace, RawEvent, Step, Time,
};

use crate::device::{PARAM, RecordingPoller, Script, addr, group_addr};
use crate::level::Levels;

/// An observer that keeps the names of the steps.
#[derive(Debug, Default)]
struct Steps(Rc<RefCell<BTreeSet<String>>>);

impl Observer for Steps {
    fn step(&mut self, observed: &StepRecord<'_>) {
        self.0.borrow_mut().insert(name(&observed.step));
    }

    fn sibling(&self) -> Self {
        Steps::default()
    }
}

/// The name of its variant.
fn name(step: &Step<'_>) -> String {
    format!("{step:?}").split(' ').next().unwrap_or_default().to_owned()
}

const LIMITS: Limits = Limits { ids: 3, channels: 8, events: 4, groups: 1, ..Limits::SINGLE };

type Followed = Drive<Script, RecordingPoller, Steps>;

fn followed() -> Followed {
    Drive::with(Script::new(), RecordingPoller::default(), Steps::default(), LIMITS)
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
fn each_kind_of_step_is_observed() {
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
    let observed = "Ack Begin BeginRead Call CloseChannel CreateId Deliver Event OpenChannel Outcome \
                    PauseChannel Readable Release ResumeChannel Submit Timeout Unreadable WaitForRoom Yield";
    assert_eq!(drive.observer().0.borrow().iter().map(String::as_str).collect::<Vec<_>>().join(" "), observed);
    drop(released_id);
}

#[test]
fn it_observes_ids_that_are_destroyed_after_their_listener() {
    let mut drive = Drive::with(
        Script::new(),
        RecordingPoller::default(),
        Steps::default(),
        Limits { ids: 32, events: 32, ..LIMITS },
    );
    let [here, there] = [(); 2].map(|()| drive.open_channel(Acks::OnDelivery).unwrap());
    let listener = drive.create_id(Some(here), PortSpace::Tcp).unwrap();
    drive.listen(listener, 0).unwrap();
    let device_channel = drive.core().device_channel(listener).unwrap();
    drive.device_mut().requests = Some((device_channel, listener, 20));
    drive.readable(device_channel);
    (0..64).for_each(|_| assert_ne!(drive.run(64), Next::Again));
    drive.migrate(listener, Some(there), Time::NEVER).unwrap();
    let _ = drive.run(64);
    assert!(!drive.observer().0.borrow().contains("Child"), "nothing is done for them");
    assert_eq!(takes(&mut drive, there), 20);
    drive.device_mut().requests = Some((device_channel, listener, 20));
    drive.readable(device_channel);
    (0..64).for_each(|_| assert_ne!(drive.run(64), Next::Again));
    drive.destroy(listener, Time::NEVER).unwrap();
    let _ = drive.run(64);
    assert!(drive.observer().0.borrow().contains("Child"));
}

#[test]
fn a_run_without_work_is_observed() {
    let mut drive = followed();
    assert_eq!(drive.run(8), Next::Wait(None));
    assert!(drive.observer().0.borrow().contains("Yield"));
}

#[test]
fn it_observes_deadlines_that_pass_and_the_end_and_no_others() {
    let mut drive = followed();
    let observed_steps = Rc::clone(&drive.observer().0);
    let has_step = |step| observed_steps.borrow().contains(step);
    assert_ne!(drive.run(8), Next::Again);
    assert!(!has_step("Timeout"), "no deadline has passed");
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    drive.resolve_addr(id, None, addr(2), Time(1)).unwrap();
    drive.set_now(Time(1));
    let _ = drive.run(8);
    assert!(has_step("Timeout") && !has_step("End"));
    drop(drive);
    assert!(has_step("End"));
}

/// An observer that keeps what `of` says of each step.
struct Told<T>(Rc<RefCell<Vec<T>>>, fn(&StepRecord<'_>) -> Option<T>);

impl<T> Observer for Told<T> {
    fn step(&mut self, observed: &StepRecord<'_>) {
        self.0.borrow_mut().extend(self.1(observed));
    }

    fn sibling(&self) -> Self {
        Told(Rc::default(), self.1)
    }
}

#[test]
fn a_request_is_told_once_and_one_without_a_call_after_its_effect() {
    let steps = Rc::new(RefCell::new(Vec::new()));
    let told = Told(Rc::clone(&steps), |observed| {
        let has_qp = observed.core.ids().any(|id| observed.core.id_info(id).is_some_and(|it| it.has_qp));
        Some((name(&observed.step), has_qp))
    });
    let mut drive = Drive::with(Script::new(), (), told, LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    steps.borrow_mut().clear();
    drive.bind(id, addr(1)).unwrap();
    assert_eq!(steps.take(), ["Submit", "Call", "Outcome"].map(|step| (step.to_owned(), false)));
    drive.attach_qp(id, |_, _| Ok(())).unwrap();
    steps.borrow_mut().clear();
    drive.detach_qp(id, |_, _| Ok(())).unwrap();
    assert_eq!(steps.take(), [("Submit".to_owned(), false)]);
}

/// Whether a channel is read again after an event, by a poller: a channel of the application and a private one.
fn reads_on<P: Poller<Script>>(poller: P) -> Vec<bool> {
    let steps = Rc::new(RefCell::new(Vec::new()));
    let told = Told(Rc::clone(&steps), |observed| match observed.step {
        Step::Event { reads_on, .. } => Some(reads_on),
        _ => None,
    });
    let mut drive = Drive::with(Script::new(), poller, told, LIMITS);
    let channel = drive.open_channel(Acks::OnDelivery).unwrap();
    for on in [Some(channel), None] {
        let id = drive.create_id(on, PortSpace::Tcp).unwrap();
        let device_channel = drive.core().device_channel(id).unwrap();
        drive.device_mut().events.push_back((device_channel, RawEvent::new(id, CmEvent::AddrChange)));
        drive.readable(device_channel);
        let _next = drive.run(8);
        drive.next_event(channel);
    }
    steps.take()
}

#[test]
fn a_step_says_whether_its_channel_is_read_on() {
    assert_eq!(reads_on(RecordingPoller::default()), [true, true]);
    assert_eq!(reads_on(Levels::default()), [false, false]);
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
