//! Re-registrations against the rules in `rules.rs`: every combination of flags, every outcome, with and without work
//! requests in flight, every course of the fallback, every moment of a removal.

use std::rc::Rc;

use cmid_proto::memory::{
    self, Change, Ended, Keys, MemoryFailure, MemoryOutcome, MemoryReason, MemoryStep, MrState, Policy, Provider,
    Region, Reply, Settled, Traffic, Valid, Way,
};
use cmid_proto::{Errno, ErrorWith};

use crate::ledger::{Counted, Freed, Memory, Use};
use crate::rules::{
    ACCESS, ANEW, BEFORE, CHANGED, Case, Expected, FALLBACKS, FENCED, FLAG_ACCESS, FLAG_PD, FLAG_TRANSLATION, Fallback,
    REMOVALS, Removal, replies,
};

type Call<'a> = memory::MemoryCall<'a, Use, Memory, u8>;

/// A registered region, and the PDs and memory to observe.
struct RegionFixture {
    a: Rc<Counted>,
    b: Rc<Counted>,
    freed: Freed,
    region: Region<Use, Memory, u8>,
}

/// The device's outcomes for the calls of one case; checks each call.
struct Device {
    case: Case,
    calls: usize,
    /// Registrations that the device has.
    handles: Vec<u8>,
}

impl RegionFixture {
    fn new() -> Self {
        let (a, b, freed) = (Counted::new("A", 0), Counted::new("B", 0), Freed::default());
        let mut region = Region::register(Use::of(&a), Memory::new("old", 64, &freed), ACCESS).unwrap();
        let ended = region.handle_outcome(MemoryOutcome::Registered(Ok((1, BEFORE)))).unwrap();
        assert!(matches!(ended, Some(Ended::Registered(BEFORE))));
        RegionFixture { a, b, freed, region }
    }

    fn change(&self, flags: u32) -> Change<Use, Memory> {
        Change {
            buffer: (flags & FLAG_TRANSLATION != 0).then(|| Memory::new("new", 32, &self.freed)),
            pd: (flags & FLAG_PD != 0).then(|| Use::of(&self.b)),
            access: (flags & FLAG_ACCESS != 0).then_some(FENCED),
        }
    }

    /// The whole content of the region as text.
    fn snapshot(&self) -> String {
        format!("{:?}", self.region)
    }

    fn uses(&self) -> [u32; 2] {
        [self.a.uses(), self.b.uses()]
    }

    /// Asserts that the change is refused and returned, and that the region is unchanged.
    fn refuses_change(&mut self, flags: u32, traffic: Traffic, reason: MemoryReason) {
        let (before, uses) = (self.snapshot(), self.uses());
        let change = self.change(flags);
        let requested = format!("{change:?}");
        let ErrorWith { given: back, error: refused } =
            self.region.reregister(change, Policy::default(), traffic).unwrap_err();
        assert_eq!((format!("{back:?}"), refused.reason), (requested, reason));
        drop(back);
        self.freed.borrow_mut().retain(|&name| name != "new");
        assert_eq!((self.snapshot(), self.uses()), (before, uses));
    }

    fn refuses_end(&mut self, traffic: Traffic, reason: MemoryReason) {
        let before = self.snapshot();
        assert_eq!(self.region.deregister(traffic).unwrap_err().reason, reason);
        assert_eq!(self.snapshot(), before);
    }
}

impl Device {
    fn answer(&mut self, call: &Call<'_>) -> MemoryOutcome<u8> {
        let case = self.case;
        self.calls += 1;
        match call {
            Call::Reregister { handle, change } => {
                assert_eq!((self.calls, **handle, change.flags().bits()), (1, 1, case.flags));
                assert_eq!(change.buffer.as_ref().map_or("new", |buffer| buffer.name), "new");
                assert_eq!(change.pd.as_ref().map_or("B", Use::name), "B");
                assert_eq!(change.access.unwrap_or(FENCED), FENCED);
                let (code, errno, ..) = case.reply;
                MemoryOutcome::Reregistered(Reply { code, errno, keys: CHANGED })
            }
            Call::Register { pd, buffer, access } => {
                let has = |flag| case.flags & flag != 0;
                assert!(case.falls_back() && self.calls == 2);
                assert_eq!(pd.name(), if has(FLAG_PD) { "B" } else { "A" });
                assert_eq!(buffer.name, if has(FLAG_TRANSLATION) { "new" } else { "old" });
                assert_eq!(*access, if has(FLAG_ACCESS) { FENCED } else { ACCESS });
                if matches!(case.fallback, Fallback::CannotRegister) {
                    return MemoryOutcome::Registered(Err(Errno::ENOMEM));
                }
                self.handles.push(2);
                MemoryOutcome::Registered(Ok((2, ANEW)))
            }
            Call::Deregister { handle } => {
                let result = match (case.fallback, **handle) {
                    (Fallback::OldLost(errno) | Fallback::OldKept(errno), 1) => Err(errno),
                    (Fallback::OldKeptNewStuck(errno, _), 1) | (Fallback::OldKeptNewStuck(_, errno), 2) => Err(errno),
                    (Fallback::Succeeds, 1) | (Fallback::OldKept(_), 2) => Ok(()),
                    other => panic!("the call is {other:?}, not a deregistration"),
                };
                if result.is_ok() {
                    self.handles.retain(|own| own != *handle);
                }
                MemoryOutcome::Deregistered(result)
            }
        }
    }
}

/// Makes the calls of the request one by one. The removal of the case happens in between.
fn settle(fixture: &mut RegionFixture, device: &mut Device) -> Settled<Memory> {
    loop {
        if device.case.removal == Removal::During(device.calls) {
            fixture.region.handle_removal();
        }
        let state = fixture.region.state();
        assert_eq!((fixture.region.keys(), fixture.region.pd().is_some()), (None, false), "while {state}");
        let outcome = device.answer(&fixture.region.call().unwrap());
        match fixture.region.handle_outcome(outcome).unwrap() {
            None => assert!(fixture.freed.borrow().is_empty()),
            Some(Ended::Reregistered(settled)) => return settled,
            Some(other) => panic!("{other:?}"),
        }
    }
}

fn seen(fixture: &RegionFixture, settled: &Settled<Memory>, expected: &Expected) -> Expected {
    let region = &fixture.region;
    let usable = region.keys().map(|keys| (keys, region.pd().unwrap().name(), region.access().unwrap()));
    assert_eq!(usable.is_some(), region.access().is_some());
    Expected {
        state: region.state(),
        result: settled.result.map_err(|failure| (failure.step, failure.errno, failure.valid)),
        returned: settled.buffer.as_ref().map(|buffer| buffer.name),
        kept: region.buffer().unwrap().name,
        uses: fixture.uses(),
        usable,
        way: region.way(),
        // Checked by `end`.
        other: expected.other,
        handles: expected.handles,
    }
}

/// Deregisters each handle once and asserts that all memory is returned. With `errno`, each attempt first fails once.
fn end(mut fixture: RegionFixture, mut device: Device, expected: &Expected, errno: Option<Errno>) {
    let (mut ended, mut tries) = (Vec::new(), 0);
    let mut fails = errno;
    let returned = loop {
        if fixture.region.call().is_none() {
            tries += 1;
            fixture.region.deregister(Traffic::Quiet).unwrap();
        }
        let Some(Call::Deregister { handle }) = fixture.region.call() else { panic!("{:?}", fixture.region) };
        let handle = *handle;
        assert!(device.handles.contains(&handle), "handle {handle} is deregistered twice");
        if let Some(errno) = fails.take() {
            let uses = fixture.uses();
            let result = fixture.region.handle_outcome(MemoryOutcome::Deregistered(Err(errno))).unwrap();
            let Some(Ended::NotDeregistered(failure)) = result else { panic!("{result:?}") };
            let survives = matches!(errno, Errno::EBUSY | Errno::EINVAL) && expected.state == MrState::Registered;
            let state = if survives { MrState::Registered } else { MrState::Unusable };
            assert_eq!((failure.errno, fixture.region.state(), fixture.uses()), (errno, state, uses));
            assert_eq!(fixture.region.keys(), expected.usable.filter(|_| survives).map(|(keys, ..)| keys));
            continue;
        }
        fails = errno;
        device.handles.retain(|&own| own != handle);
        ended.push(handle);
        if let Some(result) = fixture.region.handle_outcome(MemoryOutcome::Deregistered(Ok(()))).unwrap() {
            let Ended::Deregistered(returned) = result else { panic!("{result:?}") };
            break returned;
        }
        assert!(fixture.freed.borrow().is_empty());
    };
    assert_eq!((ended.as_slice(), device.handles.len()), (expected.handles, 0));
    assert_eq!(tries, 1 + if errno.is_some() { ended.len() } else { 0 });
    assert_eq!(returned.buffer.name, expected.kept);
    assert_eq!(returned.other.as_ref().map(|buffer| buffer.name), expected.other);
    assert_eq!(
        (fixture.uses(), fixture.region.state(), fixture.region.buffer().is_none()),
        ([0, 0], MrState::Gone, true)
    );

    fixture.refuses_end(Traffic::Quiet, MemoryReason::Gone);
    fixture.refuses_change(FLAG_ACCESS, Traffic::Quiet, MemoryReason::Gone);
    fixture.region.handle_outcome(MemoryOutcome::Deregistered(Ok(()))).unwrap_err();
    drop(fixture.region);
    assert!(fixture.freed.borrow().is_empty(), "the region freed memory");
}

fn run(case: Case, errno: Option<Errno>) {
    let mut fixture = RegionFixture::new();
    let mut device = Device { case, calls: 0, handles: vec![1] };
    let provider = if case.checks_first { Provider::ChecksFirst } else { Provider::Unknown };
    let wanted = !matches!(case.fallback, Fallback::NotWanted);
    let fallback = if wanted { memory::Fallback::Anew } else { memory::Fallback::None };
    let change = fixture.change(case.flags);
    fixture.region.reregister(change, Policy { fallback, provider }, Traffic::Quiet).unwrap();
    fixture.refuses_change(case.flags, Traffic::Quiet, MemoryReason::Busy);
    fixture.refuses_end(Traffic::Quiet, MemoryReason::Busy);

    let settled = settle(&mut fixture, &mut device);
    match case.removal {
        Removal::After => fixture.region.handle_removal(),
        // There was no such call: the removal follows the last one.
        Removal::During(call) if call >= device.calls => fixture.region.handle_removal(),
        Removal::During(_) | Removal::Never => {}
    }
    let expected = case.expected();
    assert_eq!(seen(&fixture, &settled, &expected), expected, "{case:?}");
    assert!(fixture.freed.borrow().is_empty(), "{case:?} freed memory");

    // The next legal requests.
    let removed = case.removal != Removal::Never;
    match (expected.state, removed) {
        (MrState::Registered, _) if expected.other.is_some() || expected.uses == [1, 1] => {
            fixture.refuses_change(case.flags, Traffic::Quiet, MemoryReason::InDoubt);
            assert_eq!(fixture.region.in_doubt().map(|memory| memory.name), expected.other);
        }
        (MrState::Registered, _) => {
            let change = fixture.change(case.flags);
            let unchanged = fixture.snapshot();
            assert_ne!(unchanged, {
                fixture.region.reregister(change, Policy::default(), Traffic::Quiet).unwrap();
                fixture.snapshot()
            });
            // The library refuses the change, so nothing changes.
            let reply = Reply { code: -1, errno: Errno::EINVAL, keys: Keys::default() };
            let ended = fixture.region.handle_outcome(MemoryOutcome::Reregistered(reply)).unwrap();
            assert!(matches!(ended, Some(Ended::Reregistered(_))));
            drop(ended);
            fixture.freed.borrow_mut().clear();
            assert_eq!(fixture.uses(), expected.uses);
        }
        (_, true) => fixture.refuses_change(case.flags, Traffic::Quiet, MemoryReason::DeviceGone),
        (_, false) => fixture.refuses_change(case.flags, Traffic::Quiet, MemoryReason::OnlyDeregister),
    }
    fixture.refuses_end(Traffic::InFlight, MemoryReason::InFlight);
    end(fixture, device, &expected, errno);
    // The owner frees the returned memory.
    drop(settled);
}

fn cases() -> impl Iterator<Item = Case> {
    let flags = (1..=7).flat_map(|flags| replies().map(move |reply| (flags, reply)));
    let known = flags.flat_map(|(flags, reply)| [false, true].map(|checks_first| (flags, reply, checks_first)));
    known.flat_map(|(flags, reply, checks_first)| {
        FALLBACKS
            .into_iter()
            .flat_map(move |fallback| REMOVALS.map(|removal| Case { flags, reply, checks_first, fallback, removal }))
    })
}

#[test]
fn every_change_with_every_outcome_leaves_what_the_rules_say() {
    let mut run_so_far = 0;
    for case in cases() {
        run(case, None);
        run_so_far += 1;
    }
    assert_eq!(run_so_far, 7 * replies().count() * 2 * FALLBACKS.len() * REMOVALS.len());
}

#[test]
fn after_every_outcome_a_deregistration_that_fails_can_be_tried_again() {
    for errno in [Errno::EBUSY, Errno::EINVAL, Errno::EIO] {
        // The kind of provider makes no difference to a deregistration.
        for case in cases().filter(|case| !case.checks_first) {
            run(case, Some(errno));
        }
    }
}

#[test]
fn in_flight_or_without_a_device_every_change_is_refused_and_comes_back() {
    for flags in 1..=7 {
        let mut fixture = RegionFixture::new();
        fixture.refuses_change(flags, Traffic::InFlight, MemoryReason::InFlight);
        fixture.refuses_end(Traffic::InFlight, MemoryReason::InFlight);
        let named = fixture.region.keys().expect("it is valid");
        fixture.region.handle_removal();
        assert_eq!((fixture.region.state(), fixture.region.keys()), (MrState::Unusable, None));
        for traffic in [Traffic::Quiet, Traffic::InFlight] {
            fixture.refuses_change(flags, traffic, MemoryReason::DeviceGone);
        }
        // A poll may still write to the memory.
        fixture.refuses_end(Traffic::InFlight, MemoryReason::InFlight);
        assert_eq!(fixture.region.named().map(|(_, keys)| keys), Some(named));
        fixture.region.deregister(Traffic::Quiet).unwrap();
        let ended = fixture.region.handle_outcome(MemoryOutcome::Deregistered(Ok(()))).unwrap();
        let Some(Ended::Deregistered(returned)) = ended else { panic!("{ended:?}") };
        assert_eq!((returned.buffer.name, returned.other.is_none(), fixture.uses()), ("old", true, [0, 0]));
    }
}

/// Requests other rights. The device returns `code` and `errno`; a fallback succeeds.
fn fence(fixture: &mut RegionFixture, fallback: memory::Fallback, code: i32, errno: Errno) {
    let policy = Policy { fallback, provider: Provider::Unknown };
    fixture.region.reregister(fixture.change(FLAG_ACCESS), policy, Traffic::Quiet).unwrap();
    let ended = fixture.region.run(|call| match call {
        Call::Reregister { .. } => MemoryOutcome::Reregistered(Reply { code, errno, keys: CHANGED }),
        Call::Register { .. } => MemoryOutcome::Registered(Ok((2, ANEW))),
        Call::Deregister { .. } => MemoryOutcome::Deregistered(Ok(())),
    });
    assert!(matches!(ended, Ok(Some(Ended::Reregistered(_)))));
}

#[test]
fn the_way_is_that_of_the_last_success() {
    let mut fixture = RegionFixture::new();
    assert_eq!(fixture.region.way(), Way::Anew);
    for (fallback, code, way) in [
        (memory::Fallback::Anew, 0, Way::InPlace),
        (memory::Fallback::None, -4, Way::InPlace),
        (memory::Fallback::Anew, -4, Way::Anew),
        (memory::Fallback::None, -4, Way::Anew),
        (memory::Fallback::None, -3, Way::InPlace),
    ] {
        fence(&mut fixture, fallback, code, Errno::EOPNOTSUPP);
        assert_eq!(fixture.region.way(), way);
    }
}

#[test]
fn a_failed_deregistration_reports_what_is_left_with_and_without_the_device() {
    for removed in [false, true] {
        for (errno, valid) in [(Errno::EBUSY, Valid::Old), (Errno::EINVAL, Valid::Old), (Errno::EIO, Valid::Neither)] {
            let mut fixture = RegionFixture::new();
            fixture.region.deregister(Traffic::Quiet).unwrap();
            if removed {
                fixture.region.handle_removal();
            }
            let ended = fixture.region.handle_outcome(MemoryOutcome::Deregistered(Err(errno))).unwrap();
            let failure = MemoryFailure { step: MemoryStep::Deregister, errno, valid };
            assert!(matches!(ended, Some(Ended::NotDeregistered(reported)) if reported == failure), "{ended:?}");
            let usable = valid == Valid::Old && !removed;
            let state = if usable { MrState::Registered } else { MrState::Unusable };
            assert_eq!((fixture.region.state(), fixture.region.keys()), (state, usable.then_some(BEFORE)));
        }
    }
}
