//! Worlds over seeds: reads and writes while the target crashes, its link fails, its connections are cut, and its answers are
//! late, in another order, refused or wrong, with the queues in one loop or on up to four reactors. The history is judged.
//!
//! Each unit of blocks has one command at a time, so a read returns the last write that was acknowledged, or one of those after
//! it whose end is not known. A write that was acknowledged is never executed again, nor is an earlier one after it.

mod target;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cmid_mio::proto::Errno;
use cmid_nvme::initiator::{Ended, Failure, Happened, Loss, On, Options, Ticket};
use cmid_nvme::wire::{self, Transfer};
use fastrand::Rng;
use target::{BLOCK, Wrong};
use world::fragile::{ADOPT, FETCH};
use world::{Data, World};

/// How long faults happen, and how long a fault and the time to the next one are at most, in milliseconds.
const SPAN: Duration = Duration::from_millis(1200);
const FAULT: u64 = 500;

/// The answers of a target that is broken or hostile.
const WRONG: [Wrong; 6] =
    [Wrong::Length(15), Wrong::Identifier(0xfff), Wrong::Head(4), Wrong::Twice, Wrong::Key, Wrong::OtherKey];

/// The number of seeds without the variable `NVME_WORLDS`, and the threads that run them: a world mostly waits.
const SEEDS: u64 = 24;
const THREADS: u64 = 8;

/// Blocks that are read and written together, by one command at a time. Long ones go by RDMA, short ones in the capsule.
struct Unit {
    lba: u64,
    blocks: u16,
    /// The last write that was acknowledged, and how many executions there were then.
    acked: (u64, usize),
    /// Writes after it whose end is not known.
    unknown: Vec<u64>,
    /// The command that is outstanding; for a write its version.
    outstanding: Option<(Ticket, Option<u64>)>,
}

fn units() -> Vec<Unit> {
    let unit = |lba, blocks| Unit { lba, blocks, acked: (0, 0), unknown: Vec::new(), outstanding: None };
    (0..4).map(|number| unit(8 * number, 8)).chain((40..48).map(|lba| unit(lba, 1))).collect()
}

/// What has gone wrong until this time.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Crash,
    Partition,
    Late,
    Refusals,
}

struct Run {
    world: World,
    units: Vec<Unit>,
    rng: Rng,
    versions: u64,
    fault: Option<(Fault, Instant)>,
    next: Instant,
    counts: BTreeMap<&'static str, u32>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::live(3, |options| {
            options.timeout = Duration::from_millis(400);
            options.settings.size = 4;
            // Also with more reactors than queues.
            options.reactors = [0, 1, 2, 4][seed as usize % 4];
            // Of twelve units four are long. Some memory is registered, other is copied.
            options.buffers = [0, 3, 12][seed as usize % 3];
        });
        Run {
            world,
            units: units(),
            rng: Rng::with_seed(seed),
            versions: 0,
            fault: None,
            next: Instant::now(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Begins and ends faults.
    fn disturb(&mut self) {
        let now = Instant::now();
        if self.fault.is_some_and(|(_, until)| now >= until) {
            self.heal();
        }
        if self.fault.is_some() || now < self.next {
            return;
        }
        let mut within = |most| now + Duration::from_millis(self.rng.u64(5..most));
        self.next = within(FAULT / 2);
        let until = within(FAULT);
        let fault = match self.rng.u32(0..20) {
            0 => {
                self.world.target = None;
                Fault::Crash
            }
            1 => {
                self.world.host.set_link(false);
                Fault::Partition
            }
            2 => {
                self.world.disk.delay = self.rng.u32(2..400);
                Fault::Late
            }
            3 => {
                self.world.disk.status = 6;
                Fault::Refusals
            }
            4..8 => {
                self.world.disk.wrong = Some(WRONG[self.rng.usize(..WRONG.len())]);
                self.count("wrong answers");
                return;
            }
            16.. => {
                self.world.client.fail_call(self.rng.u32(..16), Errno::ENOMEM);
                self.count("failing calls");
                return;
            }
            12..16 => {
                self.world.initiator.reset();
                self.count("resets");
                return;
            }
            cut => {
                let place = self.rng.usize(0..8);
                // A reactor panics when it fetches the event, ends the queue, or gets the next one.
                let what = if cut < 10 { self.rng.u8(FETCH..=ADOPT) } else { 0 };
                self.world.panics.store(what, Ordering::Relaxed);
                if let Some(target) = &mut self.world.target {
                    target.cut(place);
                }
                self.count("cuts");
                return;
            }
        };
        self.count("faults");
        self.fault = Some((fault, until));
    }

    fn heal(&mut self) {
        match self.fault.take() {
            Some((Fault::Crash, _)) => self.world.restart(),
            Some((Fault::Partition, _)) => self.world.host.set_link(true),
            Some((Fault::Late, _)) => self.world.disk.delay = 0,
            Some((Fault::Refusals, _)) => self.world.disk.status = 0,
            None => {}
        }
    }

    /// Begins a command on each unit that has none.
    fn begin(&mut self) {
        for unit in self.units.iter_mut().filter(|unit| unit.outstanding.is_none()) {
            let len = usize::from(unit.blocks) * BLOCK;
            let mut data = self.world.initiator.buffer(len);
            let (version, command) = if self.rng.bool() {
                self.versions += 1;
                data.copy_from_slice(&self.versions.to_le_bytes().repeat(len / 8));
                (Some(self.versions), wire::write(1, unit.lba, unit.blocks, data))
            } else {
                (None, wire::read(1, unit.lba, unit.blocks, data))
            };
            let ticket = self.world.initiator.submit(On::Io, command).expect("room");
            unit.outstanding = Some((ticket, version));
        }
    }

    /// Judges the end of a command.
    fn judge(&mut self, ended: Ended<Data>) {
        let Ended { ticket, result, command } = ended;
        let of = |unit: &&mut Unit| unit.outstanding.is_some_and(|(it, _)| it == ticket);
        let unit = self.units.iter_mut().find(of).expect("a command that is outstanding has ended");
        let (_, version) = unit.outstanding.take().expect("the command");
        let what = match (version, result) {
            (Some(version), Ok(_)) => {
                let written = &self.world.disk.written;
                assert!(written.contains(&(unit.lba, version)), "{version} was acknowledged, and not written");
                unit.acked = (version, written.len());
                unit.unknown.clear();
                "writes"
            }
            (Some(version), Err(failure)) => {
                assert!(matches!(failure, Failure::Lost(_) | Failure::Status(_)), "{failure}");
                unit.unknown.push(version);
                "failed writes"
            }
            (None, Ok(_)) => {
                let data = command.transfer.buffer().expect("its memory");
                let words: Vec<u64> =
                    data.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("a word"))).collect();
                let version = words[0];
                assert!(words.iter().all(|&word| word == version), "a torn read of {}", unit.lba);
                let may_be = version == unit.acked.0 || unit.unknown.contains(&version);
                assert!(may_be, "{version} was read, after {} was acknowledged", unit.acked.0);
                "reads"
            }
            (None, Err(_)) => "failed reads",
        };
        let is_write = matches!(command.transfer, Transfer::Out(_));
        assert_eq!(is_write, version.is_some());
        self.count(what);
    }

    /// No write is executed that was acknowledged before, nor an earlier one.
    fn check_executions(&self) {
        for unit in &self.units {
            let (acked, at) = unit.acked;
            for &(lba, version) in &self.world.disk.written[at..] {
                assert!(lba != unit.lba || version > acked, "{version} was executed after {acked} was acknowledged");
            }
        }
    }

    fn turn(&mut self) {
        self.world.turn();
        while let Some(ended) = self.world.initiator.next_ended() {
            self.judge(ended);
        }
        self.check_executions();
    }

    fn run(mut self) -> BTreeMap<&'static str, u32> {
        let until = Instant::now() + SPAN;
        while Instant::now() < until {
            self.disturb();
            self.begin();
            self.turn();
        }
        // Without faults everything ends.
        self.heal();
        let rest = Instant::now() + Duration::from_secs(60);
        while self.units.iter().any(|unit| unit.outstanding.is_some()) {
            self.turn();
            assert!(Instant::now() < rest, "a command has not ended: {:?}", self.world.happened.last());
        }
        for unit in 0..self.units.len() {
            let (lba, blocks) = (self.units[unit].lba, self.units[unit].blocks);
            let read = wire::read(1, lba, blocks, vec![0; usize::from(blocks) * BLOCK]);
            let ended = self.world.run(On::Io, read);
            self.units[unit].outstanding = Some((ended.ticket, None));
            assert!(ended.result.is_ok());
            self.judge(ended);
        }
        let lost = self.world.happened.iter().filter(|it| matches!(it, Happened::Lost(_))).count();
        let panicked = |it: &&Happened| matches!(it, Happened::Lost(Loss::Reactor));
        self.counts.insert("panics", self.world.happened.iter().filter(panicked).count() as u32);
        self.counts.insert("losses", lost as u32);
        self.counts.insert("invalidations", self.world.disk.invalidated);
        self.counts
    }
}

/// The judge notices a target that executes a write once more after it was acknowledged.
#[test]
#[should_panic(expected = "was executed after")]
fn a_write_that_is_executed_again_is_noticed() {
    let mut run = Run::new(1);
    while run.units[0].acked.0 == 0 {
        run.begin();
        run.turn();
    }
    let (lba, (version, _)) = (run.units[0].lba, run.units[0].acked);
    run.world.disk.written.push((lba, version));
    run.turn();
}

/// The next attempt would be after a minute.
#[test]
fn a_reset_brings_the_controller_up_at_once_and_sends_again_what_was_outstanding() {
    for reactors in [0, 2] {
        let mut world = World::live(2, |options| {
            (options.reactors, options.reconnect_delay) = (reactors, Duration::from_secs(60));
        });
        world.disk.delay = 1_000_000;
        world.initiator.submit(On::Io, wire::write(1, 0, 1, vec![7; BLOCK])).expect("room");
        for _ in 0..20 {
            world.turn();
        }
        world.disk.delay = 0;
        world.initiator.reset();
        assert!(world.ended().result.is_ok(), "reactors: {reactors}");
        assert_eq!(world.disk.bytes[..BLOCK], [7; BLOCK]);
        let happened: Vec<_> = world.happened.iter().map(|it| format!("{it:?}")).collect();
        assert_eq!(happened, ["Live", "Lost(Reset)", "Live"]);
        world.initiator.close();
        world.initiator.reset();
        assert!(world.initiator.controller().is_none(), "it is closed");
    }
}

/// The n-th call of the initiator's device fails, for each n: it gives up at the beginning, or it is live again.
#[test]
fn each_call_of_a_device_may_fail() {
    for reactors in [0, 2] {
        let (mut lives, mut calls) = (0, 0);
        loop {
            let mut world = World::new(Options { reactors, ..world::options(2) });
            let errno = [Errno::ENOMEM, Errno::EINVAL, Errno::EIO, Errno::ENODEV][calls as usize % 4];
            world.client.fail_call(calls, errno);
            world.turn_until(|world| !world.happened.is_empty());
            if matches!(world.happened[0], Happened::Live) {
                lives += 1;
                assert!(world.run(On::Io, wire::write(1, 0, 1, vec![7; BLOCK])).result.is_ok());
                world.initiator.reset();
                assert!(world.run(On::Io, wire::read(1, 0, 1, vec![0; BLOCK])).result.is_ok());
            } else {
                let text = format!("{:?}", world.happened);
                assert!(text.starts_with("[GivenUp") && text.contains(&errno.to_string()), "{text}");
            }
            world.initiator.close();
            if world.client.calls_to_fail() > 0 {
                break;
            }
            calls += 1;
        }
        assert!(calls > 50 && lives > 40, "{lives} of {calls}");
    }
}

#[test]
fn each_acknowledged_write_is_read_and_none_is_executed_again() {
    let mut sums = BTreeMap::<_, u32>::new();
    let seeds: u64 = std::env::var("NVME_WORLDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number"));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            std::thread::spawn(move || {
                let seeds = (0..seeds).filter(move |seed| seed % THREADS == thread);
                seeds
                    .flat_map(|seed| {
                        println!("seed {seed}");
                        Run::new(seed).run()
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    for thread in threads {
        for (what, count) in thread.join().expect("a world whose history is right") {
            *sums.entry(what).or_default() += count;
        }
    }
    println!("{sums:?}");
    // Otherwise nothing was tested.
    for what in
        ["reads", "writes", "faults", "cuts", "resets", "losses", "invalidations", "wrong answers", "failing calls"]
    {
        assert!(sums.get(what).is_some_and(|&count| count > 20), "{sums:?}");
    }
}
