//! The effects of `ibv_rereg_mr`: every combination of flags with every outcome, as `tests/memory/rules.rs` has them.
//! `tests/memory/reregistration.rs` runs the machine in each of these cases.

use std::fmt::Write as _;

use cmid_proto::Errno;
use cmid_proto::memory::{Changes, Code, Valid};

use crate::grid::grid;
use crate::rules::{ACCESS, ANEW, BEFORE, CHANGED, Case, ERRNOS, FALLBACKS, FENCED, Fallback, Removal, replies};

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

/// Writes a section for each combination of flags.
pub(crate) fn render(text: &mut String) {
    text.push_str(
        "## The effects of a re-registration\n\nOne row for all outcomes with the same effect. *Checks first*: all checks of the \
         provider precede its changes (`Provider::ChecksFirst`); *unknown*: `Provider::Unknown`. *Fallback*: the policy has \
         the fallback, and the provider does not support the change (ERR_CMD with EOPNOTSUPP). The region keeps memory and \
         uses of PDs until its deregistration, which is necessary in every case, and which returns all memory.\n",
    );
    for flags in 1..=7 {
        let names: Vec<_> =
            Changes::from_bits_retain(flags).iter_names().map(|(name, _)| format!("CHANGE_{name}")).collect();
        writeln!(text, "\n### {}\n", names.join(" + ")).unwrap();
        let mut rows: Vec<(Vec<Case>, Vec<String>)> = Vec::new();
        for case in cases(flags) {
            let cells = cells(case);
            match rows.iter_mut().find(|(_, other)| *other == cells) {
                Some((cases, _)) => cases.push(case),
                None => rows.push((vec![case], cells)),
            }
        }
        // It leaves what a change leaves that libibverbs refuses.
        let refused = cases(flags).find(|case| case.reply.0 == Code::Input.as_raw()).map(cells).unwrap();
        let in_flight = ("in flight: refused without a device call".to_owned(), refused);
        let rows = rows.into_iter().map(|(cases, cells)| (outcomes(&cases), cells));
        grid(text, "outcome", &COLUMNS, std::iter::once(in_flight).chain(rows));
    }
}

/// Without a fallback all outcomes with both kinds of providers; with one those that it begins after, where the kind makes
/// no difference.
fn cases(flags: u32) -> impl Iterator<Item = Case> {
    let with =
        move |reply, fallback, checks_first| Case { flags, reply, checks_first, fallback, removal: Removal::Never };
    let alone = replies().flat_map(move |reply| [false, true].map(|first| with(reply, Fallback::NotWanted, first)));
    let all = replies().flat_map(move |reply| FALLBACKS.map(|fallback| with(reply, fallback, false)));
    alone.chain(all.filter(|case| case.falls_back()))
}

/// What a case leaves.
fn cells(case: Case) -> Vec<String> {
    let left = case.expected();
    let valid = match left.result.map_or_else(|(_, _, valid)| valid, |_| Valid::New) {
        Valid::Old => "old",
        Valid::New => "**new**",
        Valid::Neither => "*neither*",
    };
    let keys = match left.usable {
        None => "none",
        Some((BEFORE, ..)) => "as before",
        Some((CHANGED, ..)) => "read again",
        Some((ANEW, ..)) => "new",
        Some(other) => panic!("keys from nowhere: {other:?}"),
    };
    let rights = match left.usable {
        None => "none",
        Some((.., ACCESS)) => "as before",
        Some((.., FENCED)) => "new",
        Some(other) => panic!("rights from nowhere: {other:?}"),
    };
    let [old, new] = left.uses.map(|uses| uses.to_string());
    let kept = std::iter::once(left.kept).chain(left.other).collect::<Vec<_>>().join(", ");
    let registrations = match left.handles {
        [_] => "1".to_owned(),
        many => format!("{}, the new one first", many.len()),
    };
    let cells =
        [valid, left.state.name(), left.returned.unwrap_or("–"), &kept, &old, &new, keys, rights, &registrations];
    cells.map(str::to_owned).to_vec()
}

/// Names cases. The errnos of a code are listed together, and omitted if all are included; the provider is named only
/// if it makes a difference.
fn outcomes(cases: &[Case]) -> String {
    let mut names = Vec::new();
    for code in Code::ALL.into_iter().chain([Code::Unknown(-6)]) {
        let errnos = |checks_first: bool| -> Vec<Errno> {
            let of =
                |case: &&Case| (case.reply.0, case.checks_first) == (code.as_raw(), checks_first) && !case.falls_back();
            cases.iter().filter(of).map(|case| case.reply.1).collect()
        };
        let (unknown, checking) = (errnos(false), errnos(true));
        let both: Vec<_> = unknown.iter().copied().filter(|errno| checking.contains(errno)).collect();
        let only =
            |errnos: Vec<Errno>| -> Vec<_> { errnos.into_iter().filter(|errno| !both.contains(errno)).collect() };
        names.extend(named(code, &both, ""));
        names.extend(named(code, &only(unknown), " (*unknown*)"));
        names.extend(named(code, &only(checking), " (*checks first*)"));
    }
    let mut courses: Vec<_> = cases.iter().filter(|case| case.falls_back()).map(|case| course(case.fallback)).collect();
    courses.dedup();
    names.extend(courses.into_iter().map(|course| format!("*fallback*: {course}")));
    names.join("; ")
}

fn course(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::NotWanted => "",
        Fallback::Succeeds => "succeeds",
        Fallback::CannotRegister => "`ibv_reg_mr` fails",
        Fallback::OldKept(_) => "`ibv_dereg_mr` of the old one refused (EBUSY, EINVAL), the new one undone",
        Fallback::OldKeptNewStuck(..) => "`ibv_dereg_mr` of the old one refused, and the new one cannot be undone",
        Fallback::OldLost(_) => "`ibv_dereg_mr` of the old one fails otherwise",
    }
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
