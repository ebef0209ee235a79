//! The effects of `ibv_rereg_mr`: every combination of flags with every outcome, found by running the machine.

use std::fmt::Write as _;
use std::rc::Rc;

use cmid_proto::memory::{
    Access, Buffer, Change, Changes, Code, Ended, Fallback, Keys, MemoryCall, MemoryOutcome, MemoryReason, MrState, Pd,
    Policy, Provider, Region, Reply, Settled, Traffic, Valid, Way,
};
use cmid_proto::{Errno, ErrorWith};

use crate::grid::grid;

/// A PD. Each clone is a use.
#[derive(Clone)]
struct Domain(Rc<()>);

impl Pd for Domain {
    fn same_device(&self, _: &Self) -> bool {
        true
    }

    fn copies_late(&self) -> bool {
        false
    }
}

struct Memory(&'static str);

impl Buffer for Memory {
    fn len(&self) -> usize {
        1
    }
}

type Mr = Region<Domain, Memory, u8>;

/// The course of the fallback.
#[derive(Clone, Copy, PartialEq)]
enum Course {
    NotWanted,
    Done,
    NotRegistered,
    OldKept,
    OldKeptNewStuck,
    OldLost,
}

impl Course {
    const WANTED: [Course; 5] =
        [Course::Done, Course::NotRegistered, Course::OldKept, Course::OldKeptNewStuck, Course::OldLost];

    const fn name(self) -> &'static str {
        match self {
            Course::NotWanted => "",
            Course::Done => "succeeds",
            Course::NotRegistered => "`ibv_reg_mr` fails",
            Course::OldKept => "`ibv_dereg_mr` of the old one refused (EBUSY, EINVAL), the new one undone",
            Course::OldKeptNewStuck => "`ibv_dereg_mr` of the old one refused, and the new one cannot be undone",
            Course::OldLost => "`ibv_dereg_mr` of the old one fails otherwise",
        }
    }
}

/// One outcome of a re-registration.
#[derive(Clone, Copy)]
struct Trial {
    code: Code,
    errno: Errno,
    provider: Provider,
    course: Course,
}

/// The effects of an outcome: the cells of a row.
#[derive(Clone, PartialEq)]
struct Left(Vec<String>);

const COLUMNS: [&str; 9] = [
    "valid",
    "state",
    "returned memory",
    "kept memory",
    "uses of the old PD",
    "uses of the new PD",
    "keys",
    "rights",
    "registrations to deregister",
];

const ERRNOS: [Errno; 7] =
    [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::ENOMEM, Errno::EBUSY, Errno::ENOENT, Errno::EACCES, Errno::EIO];

const BEFORE: Keys = Keys { lkey: 1, rkey: 1 };
const CHANGED: Keys = Keys { lkey: 2, rkey: 2 };
const ANEW: Keys = Keys { lkey: 3, rkey: 3 };

/// Writes a section for each combination of flags.
pub(crate) fn render(text: &mut String) {
    text.push_str(
        "## The effects of a re-registration\n\nOne row for all outcomes with the same effect. *Checks first*: all checks of the \
         provider precede its changes (`Provider::ChecksFirst`); *unknown*: `Provider::Unknown`. *Fallback*: the policy has \
         the fallback, and the provider does not support the change (ERR_CMD with EOPNOTSUPP). The region keeps memory and \
         uses of PDs until its deregistration, which is necessary in every case, and which returns all memory.\n",
    );
    for bits in 1..=7 {
        let flags = Changes::from_bits_retain(bits);
        let names: Vec<_> = flags.iter_names().map(|(name, _)| format!("CHANGE_{name}")).collect();
        writeln!(text, "\n### {}\n", names.join(" + ")).unwrap();
        let mut rows: Vec<(Vec<Trial>, Left)> = Vec::new();
        for trial in trials() {
            let left = run(flags, trial);
            match rows.iter_mut().find(|(_, other)| *other == left) {
                Some((trials, _)) => trials.push(trial),
                None => rows.push((vec![trial], left)),
            }
        }
        let rows = rows.into_iter().map(|(trials, left)| (outcomes(&trials), left.0));
        grid(text, "outcome", &COLUMNS, std::iter::once(in_flight(flags)).chain(rows));
    }
}

fn trials() -> impl Iterator<Item = Trial> {
    let documented = Code::ALL.into_iter().flat_map(|code| {
        // errno is significant only after ERR_CMD; after the other codes it must have no effect.
        ERRNOS.map(move |errno| (code, errno))
    });
    let undocumented = ERRNOS.map(|errno| (Code::Unknown(-6), errno));
    let replies = documented.chain(undocumented).flat_map(|(code, errno)| {
        [Provider::Unknown, Provider::ChecksFirst].map(|provider| Trial {
            code,
            errno,
            provider,
            course: Course::NotWanted,
        })
    });
    let fallbacks = Course::WANTED.into_iter().flat_map(|course| {
        [Provider::Unknown, Provider::ChecksFirst].map(|provider| Trial {
            code: Code::Cmd,
            errno: Errno::EOPNOTSUPP,
            provider,
            course,
        })
    });
    replies.chain(fallbacks)
}

/// A region with the old memory in the old PD, and the requested change.
fn registered(old: &Domain, new: &Domain, flags: Changes) -> (Mr, Change<Domain, Memory>) {
    let made = Region::register(old.clone(), Memory("old"), Access::LOCAL_WRITE);
    let mut region: Mr = made.unwrap();
    let ended = region.handle_outcome(MemoryOutcome::Registered(Ok((1, BEFORE)))).unwrap();
    assert!(matches!(ended, Some(Ended::Registered(_))), "it is not registered");
    let change = Change {
        buffer: flags.contains(Changes::TRANSLATION).then_some(Memory("new")),
        pd: flags.contains(Changes::PD).then(|| new.clone()),
        access: flags.contains(Changes::ACCESS).then_some(Access::empty()),
    };
    (region, change)
}

fn pds() -> (Domain, Domain) {
    (Domain(Rc::new(())), Domain(Rc::new(())))
}

fn uses(pd: &Domain) -> String {
    (Rc::strong_count(&pd.0) - 1).to_string()
}

/// With work requests in flight the change is refused, whatever its outcome would be.
fn in_flight(flags: Changes) -> (String, Vec<String>) {
    let (old, new) = pds();
    let (mut region, change) = registered(&old, &new, flags);
    let Err(ErrorWith { given: change, error: refused }) =
        region.reregister(change, Policy::default(), Traffic::InFlight)
    else {
        panic!("a re-registration in flight was not refused");
    };
    let back = change.buffer.map_or("–", |memory| memory.0).to_owned();
    drop(change.pd);
    let cells = after(&region, Valid::Old, back, &old, &new);
    assert!(
        refused.reason == MemoryReason::InFlight,
        "a re-registration in flight was refused because {}",
        refused.reason
    );
    ("in flight: refused without a device call".to_owned(), finish(region, cells).0)
}

fn run(flags: Changes, trial: Trial) -> Left {
    let (old, new) = pds();
    let (mut region, change) = registered(&old, &new, flags);
    let fallback = if trial.course == Course::NotWanted { Fallback::None } else { Fallback::Anew };
    let policy = Policy { fallback, provider: trial.provider };
    region.reregister(change, policy, Traffic::Quiet).unwrap();
    let ended = region.run(|call| answer(trial, &call)).unwrap();
    let Some(Ended::Reregistered(Settled { result, buffer })) = ended else { panic!("it has not ended") };
    let valid = result.map_or_else(|failure| failure.valid, |_: Way| Valid::New);
    let back = buffer.as_ref().map_or("–", |memory| memory.0).to_owned();
    let cells = after(&region, valid, back, &old, &new);
    finish(region, cells)
}

fn answer(trial: Trial, call: &MemoryCall<'_, Domain, Memory, u8>) -> MemoryOutcome<u8> {
    match call {
        MemoryCall::Reregister { .. } => {
            MemoryOutcome::Reregistered(Reply { code: trial.code.as_raw(), errno: trial.errno, keys: CHANGED })
        }
        MemoryCall::Register { .. } if trial.course == Course::NotRegistered => {
            MemoryOutcome::Registered(Err(Errno::ENOMEM))
        }
        MemoryCall::Register { .. } => MemoryOutcome::Registered(Ok((2, ANEW))),
        MemoryCall::Deregister { handle } => MemoryOutcome::Deregistered(match (trial.course, **handle) {
            (Course::OldKept | Course::OldKeptNewStuck, 1) | (Course::OldKeptNewStuck, _) => Err(Errno::EBUSY),
            (Course::OldLost, 1) => Err(Errno::EIO),
            _ => Ok(()),
        }),
    }
}

/// All cells except two: the kept memory and the number of registrations are found by `finish`.
fn after(region: &Mr, valid: Valid, back: String, old: &Domain, new: &Domain) -> Vec<String> {
    let keys = match region.keys() {
        None => "none",
        Some(BEFORE) => "as before",
        Some(CHANGED) => "read again",
        Some(ANEW) => "new",
        Some(other) => panic!("keys from nowhere: {other:?}"),
    };
    let rights = match region.access() {
        None => "none",
        Some(Access::LOCAL_WRITE) => "as before",
        Some(_) => "new",
    };
    let valid = match valid {
        Valid::Old => "old",
        Valid::New => "**new**",
        Valid::Neither => "*neither*",
    };
    vec![valid.into(), region.state().name().into(), back, uses(old), uses(new), keys.into(), rights.into()]
}

/// Deregisters the region. Adds to the row the memory that it returns and the number of registrations.
fn finish(mut region: Mr, mut cells: Vec<String>) -> Left {
    region.deregister(Traffic::Quiet).unwrap();
    let mut registrations = 0;
    let ended = region
        .run(|_| {
            registrations += 1;
            MemoryOutcome::Deregistered(Ok(()))
        })
        .unwrap();
    let Some(Ended::Deregistered(returned)) = ended else { panic!("it has not been deregistered") };
    assert!(region.state() == MrState::Gone, "it is not gone");
    let kept = [Some(returned.buffer), returned.other].into_iter().flatten().map(|memory| memory.0);
    cells.insert(3, kept.collect::<Vec<_>>().join(", "));
    cells.push(match registrations {
        1 => "1".into(),
        many => format!("{many}, the new one first"),
    });
    assert!(cells.len() == COLUMNS.len(), "a row of {} cells", cells.len());
    Left(cells)
}

/// Names trials. The errnos of a code are listed together, and omitted if all are included; the provider is named
/// only if it makes a difference.
fn outcomes(trials: &[Trial]) -> String {
    let mut names = Vec::new();
    for code in Code::ALL.into_iter().chain([Code::Unknown(-6)]) {
        let errnos = |provider: Provider| -> Vec<Errno> {
            let of = |trial: &&Trial| (trial.code, trial.provider, trial.course) == (code, provider, Course::NotWanted);
            trials.iter().filter(of).map(|trial| trial.errno).collect()
        };
        let (unknown, checking) = (errnos(Provider::Unknown), errnos(Provider::ChecksFirst));
        let both: Vec<_> = unknown.iter().copied().filter(|errno| checking.contains(errno)).collect();
        let only =
            |errnos: Vec<Errno>| -> Vec<_> { errnos.into_iter().filter(|errno| !both.contains(errno)).collect() };
        names.extend(named(code, &both, ""));
        names.extend(named(code, &only(unknown), " (*unknown*)"));
        names.extend(named(code, &only(checking), " (*checks first*)"));
    }
    for course in Course::WANTED {
        if trials.iter().any(|trial| trial.course == course) {
            names.push(format!("*fallback*: {}", course.name()));
        }
    }
    names.join("; ")
}

fn named(code: Code, errnos: &[Errno], provider: &str) -> Option<String> {
    let code = match code {
        Code::Done => "0".to_owned(),
        Code::Unknown(_) => "an undocumented value".to_owned(),
        Code::Input | Code::DontForkNew | Code::DoForkOld | Code::Cmd | Code::CmdAndDoForkNew => code.to_string(),
    };
    if errnos.is_empty() {
        return None;
    }
    let symbols: Vec<_> = errnos.iter().map(ToString::to_string).collect();
    let with = if errnos.len() == ERRNOS.len() { String::new() } else { format!(" with {}", symbols.join(", ")) };
    Some(format!("{code}{with}{provider}"))
}
