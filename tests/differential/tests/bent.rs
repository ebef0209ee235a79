//! Checks that the test finds differences: it distinguishes a modified simulator from the original, by a small
//! program.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use cmid_differential::address::{Endpoint, Ip};
use cmid_differential::campaign::{FIRST_SEED, LEAST, Outcome, Plan, run};
use cmid_differential::generate::{self, Kind, NUMBERS};
use cmid_differential::judge::{Reality, Run, Verdict, judge};
use cmid_differential::program::{Action, CHILDREN, IdCall, Level, Network, Offer, Program, SideName, Step};
use cmid_differential::simulated::{Prompt, Schedule, schedules, simulate, simulate_on};
use cmid_differential::trace::{Line, Seen};
use cmid_proto::{
    Call, ChannelKey, CmEvent, CmOption, Device, DeviceLayer, Errno, IdKey, Outcome as Returned, Pollable, PortSpace,
    RawEvent,
};
use cmid_sim::{Flavour, SimDevice};
use rustix::event::{EventfdFlags, eventfd};

/// The modification of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bend {
    Nothing,
    /// A second listen succeeds.
    ListenTwice,
    /// Reasons of rejections are lost.
    Reason,
    /// The last byte of private data is lost.
    PrivateData,
    /// Unread events are read and discarded when an id migrates.
    Migration,
    /// The depths are not swapped for the peer.
    Depths,
    /// A disconnect in a wrong state succeeds.
    Disconnect,
    /// No descriptor becomes readable, so no waiter would wake up.
    Asleep,
}

struct Bent {
    device: SimDevice,
    bend: Bend,
    listening: Vec<IdKey>,
    spare: u32,
    /// A descriptor that never becomes readable.
    asleep: OwnedFd,
}

impl Bent {
    fn new(device: SimDevice, bend: Bend) -> Self {
        let asleep = eventfd(0, EventfdFlags::CLOEXEC).unwrap_or_else(|error| panic!("{error}"));
        Bent { device, bend, listening: Vec::new(), spare: 0, asleep }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "one thing is bent, the rest is straight")]
impl DeviceLayer for Bent {
    cmid_proto::layer_on!(device: SimDevice);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let mut raw = self.device.fetch(on, child)?;
        if let Some(raw) = &mut raw {
            match self.bend {
                Bend::Reason if raw.kind == CmEvent::Rejected => raw.status = 28,
                Bend::PrivateData => raw.private_data = raw.private_data.split_last().map_or(&[], |(_, rest)| rest),
                Bend::Depths => {
                    let param = &mut raw.param.0;
                    std::mem::swap(&mut param.responder_resources, &mut param.initiator_depth);
                }
                _ => {}
            }
        }
        Ok(raw)
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Returned {
        if let (Bend::Migration, Call::Migrate { from, .. }) = (self.bend, call) {
            self.spare += 1;
            let spare = IdKey::from_parts(0, self.spare, 7).ok_or(Errno::EINVAL)?;
            let _ = self.device.fetch(*from, spare);
        }
        let returned = self.device.call(call, private_data);
        match *call {
            Call::Listen { id, .. } if returned.is_ok() => self.listening.push(id),
            Call::Listen { id, .. } if self.bend == Bend::ListenTwice && self.listening.contains(&id) => return Ok(()),
            Call::Disconnect { .. } if self.bend == Bend::Disconnect => return Ok(()),
            _ => {}
        }
        returned
    }
}

impl Pollable for Bent {
    fn fd(&self, on: ChannelKey) -> Option<BorrowedFd<'_>> {
        let fd = self.device.fd(on)?;
        Some(if self.bend == Bend::Asleep { self.asleep.as_fd() } else { fd })
    }

    fn sibling(&self) -> Self {
        Bent::new(self.device.sibling(), self.bend)
    }
}

struct BentReality {
    bend: Bend,
    /// Whether no effect of the steps before a boundary has happened yet.
    hurried: bool,
    /// Which time waits end in the same tick.
    ticks: u64,
}

impl Reality for BentReality {
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>> {
        let wrap = |device| Bent::new(device, self.bend);
        let one = |program: &Program| {
            let delays = if self.hurried { vec![Duration::ZERO; program.boundaries()] } else { Vec::new() };
            let schedule = Schedule { delays, ticks: self.ticks, ..Schedule::default() };
            let ran = simulate_on(program, NUMBERS, Flavour::Linux6_12, &schedule, wrap);
            Run::simulated(NUMBERS, ran)
        };
        Ok(programs.iter().map(one).collect())
    }

    fn flavour(&self) -> Flavour {
        Flavour::Linux6_12
    }
}

fn bent(bend: Bend) -> BentReality {
    BentReality { bend, hurried: false, ticks: 0 }
}

const IWARP: Kind = Kind::Calls(Network::Iwarp);

fn plan(seeds: Range<u64>) -> Plan {
    Plan {
        kind: Kind::Calls(Network::Roce),
        seeds,
        batch: 10,
        limit: None,
        least: 1,
        deadline: None,
        failures: 1,
        shrink: false,
    }
}

fn campaign(bend: Bend, hurried: bool, shrink: bool) -> Outcome {
    let plan = Plan { shrink, ..plan(0..100) };
    run(&plan, &mut BentReality { hurried, ..bent(bend) }, |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_simulator_agrees_with_itself_under_every_schedule() {
    for hurried in [false, true] {
        let outcome = campaign(Bend::Nothing, hurried, false);
        assert_eq!((outcome.agreed, outcome.disagreements.len(), outcome.undecided.len()), (100, 0, 0));
    }
}

#[test]
fn time_waits_end_with_the_oldest_or_within_a_tick_with_the_newest() {
    for ticks in [u64::MAX, 0b0101, 0b1010] {
        let mut reality = BentReality { ticks, ..bent(Bend::Nothing) };
        let outcome = run(&plan(0..200), &mut reality, |_| {}).unwrap();
        assert_eq!((outcome.agreed, outcome.disagreements.len(), outcome.undecided.len()), (200, 0, 0), "{ticks:b}");
    }
}

/// Three connections of side a that end one after the other.
fn three_connections() -> Program {
    use Action::{Create, LetTimePass, On, OpenChannel, Read};
    use IdCall::{Accept, Bind, Connect, Disconnect, Establish, Listen, ResolveAddr, ResolveRoute};
    let (channel, at) = (0, Endpoint(Ip::OfB, 1));
    let (open, read) = (OpenChannel { channel, explicit_acks: false }, Read { channel, most: None });
    let create = |id| Create { id, channel: Some(channel), space: PortSpace::Tcp };
    let offer = |qp| Offer { qp, serves: 1, starts: 1, rnr: 1, data: 0 };
    let (a, b) = (SideName::A, SideName::B);
    let mut steps = vec![(a, open), (b, open), (b, create(0)), (b, On(0, Bind(at))), (b, On(0, Listen(8)))];
    for id in 0..3 {
        steps.extend([(a, create(id)), (a, On(id, ResolveAddr { src: None, dst: at })), (a, read)]);
        steps.extend([(a, On(id, ResolveRoute)), (a, read), (a, On(id, Connect(offer(id)))), (b, read)]);
        steps.extend([(b, On(CHILDREN + id, Accept(offer(8 + id)))), (a, read), (a, On(id, Establish)), (b, read)]);
    }
    for id in 0..3 {
        steps.extend([(a, On(id, Disconnect)), (b, read), (b, On(CHILDREN + id, Disconnect)), (a, read)]);
    }
    steps.push((a, LetTimePass));
    let steps = steps.into_iter().map(|(side, action)| Step { side, action, races: false }).collect();
    Program { seed: 0, level: Level::Device, network: Network::Roce, steps }
}

#[test]
fn no_ticks_make_the_oldest_of_three_time_waits_end_last_and_the_others_in_turn() {
    let program = three_connections();
    let mut reality = bent(Bend::Nothing);
    let mut run = reality.run(std::slice::from_ref(&program)).unwrap().remove(0);
    let is_end = |line: &Line| matches!(&line.what, Seen::Event { kind, .. } if kind == "TIMEWAIT_EXIT");
    let places: Vec<usize> = (0..run.trace.a.len()).filter(|&at| is_end(&run.trace.a[at])).collect();
    assert_eq!(places.len(), 3);
    run.trace.a.swap(places[0], places[1]);
    assert_eq!(judge(&program, &run, Flavour::Linux6_12), Verdict::Agrees);
    run.trace.a.swap(places[1], places[2]);
    assert!(matches!(judge(&program, &run, Flavour::Linux6_12), Verdict::Differs(_)));
}

/// A client on the side of its listener. The read that confirms the answer may see that the server is established.
fn connection_of_one_side() -> Program {
    use Action::{Create, On, OpenChannel};
    use IdCall::{Accept, AttachQp, Bind, Connect, Listen, ResolveAddr, ResolveRoute};
    let read = Action::Read { channel: 0, most: None };
    let to = Endpoint(Ip::OfB, 1);
    let offer = Offer { qp: 1, serves: 1, starts: 1, rnr: 1, data: 0 };
    let actions = [
        OpenChannel { channel: 0, explicit_acks: false },
        Create { id: 0, channel: Some(0), space: PortSpace::Tcp },
        On(0, Bind(to)),
        On(0, Listen(8)),
        Create { id: 1, channel: Some(0), space: PortSpace::Tcp },
        On(1, ResolveAddr { src: None, dst: to }),
        read,
        On(1, ResolveRoute),
        read,
        On(1, AttachQp),
        On(1, Connect(offer)),
        read,
        On(CHILDREN, Accept(Offer { qp: 2, ..offer })),
        read,
        read,
    ];
    let steps = actions.map(|action| Step { side: SideName::B, action, races: false }).to_vec();
    Program { seed: 0, level: Level::Device, network: Network::Roce, steps }
}

#[test]
fn a_message_may_arrive_while_the_step_that_sends_it_goes_on() {
    let program = connection_of_one_side();
    let ran = |prompt| {
        let schedule = Schedule { prompt, ..Schedule::default() };
        simulate(&program, NUMBERS, Flavour::Linux6_12, &schedule)
    };
    let (late, early) = (ran(Prompt::None), ran(Prompt::All));
    assert_ne!(late.trace, early.trace);
    let run = Run::simulated(NUMBERS, early);
    assert_eq!(judge(&program, &run, Flavour::Linux6_12), Verdict::Agrees);
}

#[test]
fn what_was_bent_is_found() {
    use Bend::{Asleep, Depths, Disconnect, ListenTwice, Migration, PrivateData, Reason};
    for bend in [ListenTwice, Reason, PrivateData, Migration, Depths, Disconnect, Asleep] {
        let outcome = campaign(bend, false, false);
        assert!(!outcome.disagreements.is_empty(), "{bend:?} was not found");
    }
}

#[test]
fn what_differs_is_made_small() {
    for (bend, steps) in [(Bend::ListenTwice, 8), (Bend::Disconnect, 4)] {
        let outcome = campaign(bend, false, true);
        let found = outcome.disagreements.first().unwrap_or_else(|| panic!("{bend:?} was not found"));
        assert!(found.smallest.steps.len() <= steps, "{bend:?}: {found}");
        assert_eq!(found.repeated, Some(3));
    }
}

#[test]
fn no_more_programs_are_shown_and_made_small_than_were_asked_for() {
    let (plan, mut said) = (Plan { batch: 100, shrink: true, ..plan(0..100) }, Vec::new());
    let outcome = run(&plan, &mut bent(Bend::PrivateData), |line| said.push(line.to_owned())).unwrap();
    let count = |text: &str| said.iter().filter(|line| line.contains(text)).count();
    assert!(outcome.disagreements.len() > 2, "{said:#?}");
    assert_eq!((count("making seed"), count("side a:")), (1, 2), "found, and made small");
    assert_eq!(count("differs too"), outcome.disagreements.len() - 1);
}

#[test]
fn a_seed_always_gives_the_same_program_and_its_text_gives_it_again() {
    for seed in 0..50 {
        let program = generate::program(seed);
        assert_eq!(program, generate::program(seed));
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
    }
}

#[test]
fn no_program_holds_up_a_kernel_and_races_are_few_and_iwarp_has_no_datagrams_and_no_groups() {
    for seed in 0..60 {
        let programs = [generate::program(seed), IWARP.program(seed)];
        for program in &programs {
            assert!(generate::is_safe(program), "{program}");
            assert!(schedules(program).len() <= 16, "{program}");
        }
        for step in &programs[1].steps {
            let datagram = matches!(step.action, Action::Create { space: PortSpace::Udp | PortSpace::Ipoib, .. });
            let group = matches!(step.action, Action::On(_, IdCall::Join { .. } | IdCall::Leave(_)));
            assert!(!datagram && !group, "{}", programs[1]);
        }
    }
}

#[test]
fn programs_go_to_the_borders() {
    let steps: Vec<Action> = (0..400).flat_map(|seed| generate::program(seed).steps).map(|step| step.action).collect();
    let looked_up =
        |ip: Ip| steps.iter().any(|step| matches!(step, Action::On(_, IdCall::ResolveAddr { dst, .. }) if dst.0 == ip));
    let from = |own: Ip, many: &[Ip]| {
        let is = |step: &Action| matches!(step, Action::On(_, IdCall::ResolveAddr { src: Some(src), dst }) if src.0 == own && many.contains(&dst.0));
        steps.iter().any(is)
    };
    for ip in
        [Ip::Silent, Ip::Broadcast, Ip::Everybody, Ip::Mapped, Ip::Link6, Ip::NoLink6, Ip::Group6(4), Ip::LinkGroup6(5)]
    {
        assert!(looked_up(ip), "{ip:?}");
    }
    assert!(from(Ip::Loopback, &[Ip::Broadcast, Ip::Everybody, Ip::Group(1)]));
    let reached = |wanted: fn(&Action) -> bool| steps.iter().any(wanted);
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::Bind(Endpoint(Ip::LinkGroup6(_), _))))));
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::Bind(Endpoint(Ip::OfOther, _))))));
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::Bind(Endpoint(Ip::ThisNetwork, _))))));
    assert!(
        reached(|step| matches!(step, Action::On(_, IdCall::Bind(Endpoint(Ip::Any6, 4))))),
        "ids that share a port"
    );
    assert!(
        reached(|step| matches!(step, Action::On(_, IdCall::SetOption(CmOption::AckTimeout(31))))),
        "after the route"
    );
    assert!(reached(|step| matches!(step, Action::Create { space: PortSpace::Ipoib, .. })));
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::AttachHugeQp))));
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::Join { group: 4.., .. }))));
    assert!(reached(|step| matches!(step, Action::On(_, IdCall::SetEce(_)))));
}

#[test]
fn a_run_that_is_too_slow_for_its_timers_is_not_judged() {
    let seeds = 0..400;
    let waits = seeds.map(generate::program).find(|program| {
        let ran = simulate(program, NUMBERS, Flavour::Linux6_12, &Schedule::default());
        ran.limits.phases.iter().any(Option::is_some)
    });
    let program = waits.unwrap_or_else(|| panic!("no program has a time wait"));
    let mut slow = bent(Bend::Disconnect).run(std::slice::from_ref(&program)).unwrap().remove(0);
    slow.trace.a.clear();
    slow.phases.iter_mut().for_each(|phase| *phase = Duration::from_secs(1));
    let verdict = judge(&program, &slow, Flavour::Linux6_12);
    assert!(matches!(verdict, Verdict::TooSlow(_)), "{verdict:?}");
}

/// The program takes longer than a time wait: which step comes after it is not known, and that all else agrees is.
#[test]
fn a_slow_run_whose_timers_end_at_another_step_agrees() {
    /// Longer than a time wait.
    const LONG: Duration = Duration::from_secs(1);
    let programs = (0..400).map(generate::program);
    let late = |program: &Program| {
        let timely = simulate(program, NUMBERS, Flavour::Linux6_12, &Schedule::default());
        let late = Schedule { late: Some((program.steps.len(), LONG)), ..Schedule::default() };
        let late = simulate(program, NUMBERS, Flavour::Linux6_12, &late);
        (late.trace != timely.trace).then_some(late)
    };
    let (program, late) = programs.filter_map(|program| late(&program).map(|late| (program, late))).next().unwrap();
    let mut run = Run::simulated(NUMBERS, late);
    assert!(matches!(judge(&program, &run, Flavour::Linux6_12), Verdict::Differs(_)), "it was fast");
    run.phases.iter_mut().for_each(|phase| *phase = LONG);
    run.whole = LONG;
    assert_eq!(judge(&program, &run, Flavour::Linux6_12), Verdict::Agrees);
}

/// A kernel on which every run takes too long, and which reports this late.
struct Busy {
    takes: Duration,
}

impl Reality for Busy {
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>> {
        std::thread::sleep(self.takes);
        let mut runs = bent(Bend::Nothing).run(programs)?;
        for run in &mut runs {
            run.trace.a.clear();
            run.phases.iter_mut().for_each(|phase| *phase = Duration::from_secs(1000));
            run.whole = Duration::from_secs(1000);
        }
        Ok(runs)
    }

    fn flavour(&self) -> Flavour {
        Flavour::Linux6_12
    }
}

#[test]
fn what_is_repeated_ends_at_the_deadline_and_nothing_agreed_is_no_success() {
    // Only programs with a running timer: the others differ.
    let is_timed = |&seed: &u64| {
        let limits = simulate(&generate::program(seed), NUMBERS, Flavour::Linux6_12, &Schedule::default()).limits;
        limits.whole.is_some() || limits.phases.iter().any(Option::is_some)
    };
    let seed = (0..400).find(is_timed).unwrap_or_else(|| panic!("no program has a timer"));
    let plan = Plan { deadline: Some(Duration::from_millis(20)), ..plan(seed..seed + 1) };
    let outcome = run(&plan, &mut Busy { takes: Duration::from_millis(15) }, |_| {}).unwrap();
    assert_eq!((outcome.undecided.as_slice(), outcome.agreed), ([seed].as_slice(), 0));
    assert!(outcome.repeated < 3, "{outcome}");
    assert_eq!(outcome.objections(&plan, false), ["only 0 agree, of 1 at least"]);
}

#[test]
fn a_limit_in_time_does_not_make_fewer_enough() {
    let plan = Plan { limit: Some(Duration::ZERO), least: 15, ..plan(0..100) };
    let outcome = run(&plan, &mut bent(Bend::Nothing), |_| {}).unwrap();
    assert_eq!((outcome.agreed, outcome.not_run), (20, 80));
    assert_eq!(outcome.objections(&plan, false), Vec::<String>::new());
    assert!(!outcome.objections(&plan, true).is_empty(), "so few reach everything");
}

#[test]
fn few_may_be_undecided_and_none_may_differ_or_be_left_out_unasked() {
    let plan = plan(0..100);
    let observed = |outcome: Outcome| outcome.objections(&plan, false).len();
    let fine = Outcome { agreed: 98, ..Outcome::default() };
    assert_eq!(observed(Outcome { undecided: vec![1, 2], ..fine.clone() }), 0);
    assert_eq!(observed(Outcome { undecided: vec![1, 2, 3], ..fine.clone() }), 1);
    assert_eq!(observed(Outcome { not_run: 2, ..fine }), 1);
    assert_eq!(observed(campaign(Bend::Disconnect, false, false)), 2, "one differs, and those after it were not run");
}

#[test]
fn enough_is_reached_every_day() {
    for (kind, programs) in [(Kind::Calls(Network::Roce), LEAST), (IWARP, 120)] {
        let plan = Plan { kind, ..plan(FIRST_SEED..FIRST_SEED + programs) };
        let outcome = run(&plan, &mut bent(Bend::Nothing), |_| {}).unwrap();
        println!("{outcome}");
        assert_eq!((outcome.agreed, outcome.disagreements.len()), (programs, 0));
        assert_eq!(outcome.objections(&plan, true), Vec::<String>::new());
    }
}

#[test]
fn a_difference_on_iwarp_is_found_and_its_program_names_its_transport() {
    let plan = Plan { kind: IWARP, ..plan(FIRST_SEED..FIRST_SEED + 20) };
    let outcome = run(&plan, &mut bent(Bend::PrivateData), |_| {}).unwrap();
    let found = outcome.disagreements.first().unwrap_or_else(|| panic!("it was not found"));
    let text = found.to_string();
    assert!(text.contains("--transport siw --program") && text.contains(r#""network":"Iwarp""#), "{text}");
    let again: Program = serde_json::from_str(&serde_json::to_string(&found.program).unwrap()).unwrap();
    assert_eq!(again, found.program);
}
