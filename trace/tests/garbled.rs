//! Recordings are untrusted input: errors are detected and reported, and no input causes a panic.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use cmid_trace::{Recording, Wrong, replay};
use common::{KERNEL, SIM, texts};
use proptest::prelude::*;

const BEGIN: &str =
    r#"{"begin":{"format":"cmid-trace","version":3,"limits":{"ids":4,"channels":4,"events":4,"groups":4}}}"#;

/// Reads and replays one recording.
fn play(text: &[u8]) -> Result<bool, Wrong> {
    let recordings = [Recording::read(text)?];
    replay(&recordings, |_, step| drop(step.to_string())).map_err(|(_, wrong)| wrong)?;
    Ok(recordings[0].is_whole())
}

fn wrong(text: &[u8]) -> String {
    play(text).unwrap_err().to_string()
}

fn after_begin(lines: &str) -> String {
    wrong(format!("{BEGIN}\n{lines}").as_bytes())
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    assert_eq!(wrong(b""), "line 1: the trace is empty");
    assert_eq!(wrong(b"\"timeout\"\n"), "line 1: a trace begins with \"begin\"");
    assert_eq!(wrong(&BEGIN.as_bytes()[..40]), "line 1: the line is cut off");
    let of_later = BEGIN.replace("\"version\":3", "\"version\":4") + "\n";
    assert_eq!(wrong(of_later.as_bytes()), "line 1: cmid-trace of version 4 is not cmid-trace of version 3");
    let of_others = BEGIN.replace("cmid-trace", "\\u001b[m") + "\n";
    assert!(wrong(of_others.as_bytes()).starts_with("line 1: \\u{1b}[m of version 3 is not"));
    assert_eq!(after_begin(&format!("{BEGIN}\n")), "line 2: the trace begins twice");
    assert_eq!(after_begin("{\"time\":1}\n{\"ti"), "line 3: the line is cut off");
    assert_eq!(after_begin("{\"time\":1}\n\n"), "line 3: column 0: EOF while parsing a value");
    assert_eq!(after_begin("{\"time\":1,\"x\":2}\n"), "line 2: column 9: expected value");
    assert!(after_begin("{\"readable\":\"id0\"}\n").contains("\"id0\" is no key of a channel"));
    assert!(after_begin("{\"close_channel\":{\"channel\":\"ch0\",\"why\":1}}\n").contains("unknown field `why`"));
    assert!(after_begin("\u{fffd}\n").starts_with("line 2: column 1: expected value"));
    assert!(wrong(&[BEGIN.as_bytes(), b"\n\"\xff\"\n"].concat()).starts_with("line 2: column"));
    let deep = "[".repeat(100_000);
    assert!(after_begin(&format!("{deep}\n")).starts_with("line 2: column"));
}

#[test]
fn a_core_that_does_otherwise_is_reported_with_its_line() {
    let open = "{\"open_channel\":{\"acks\":\"explicit\",\"is\":\"ch0\"}}\n";
    let call = "{\"call\":{\"call\":\"OpenChannel { channel: ch0 }\"}}\n";
    let other_key = open.replace("ch0", "ch1");
    assert_eq!(after_begin(&other_key), "line 2: the key is Some(\"ch0\"); recorded was Some(\"ch1\")");
    assert_eq!(after_begin(call), "line 2: the core has no call");
    let other_call = call.replace("ch0", "ch3");
    assert!(
        after_begin(&format!("{open}{other_call}")).starts_with("line 3: the call is \"OpenChannel { channel: ch0")
    );
    assert!(after_begin(&format!("{open}\"timeout\"\n")).starts_with("line 3: the next step is the call OpenChannel"));
    assert!(after_begin(&format!("{open}{call}\"timeout\"\n")).starts_with("line 4: a call is under way"));
    assert!(
        after_begin(&format!("{open}{call}{{\"outcome\":{{\"state\":\"idle\"}}}}\n"))
            .starts_with("line 4: the id's state")
    );
    assert!(
        after_begin(&format!("{open}{call}{{\"outcome\":{{\"fault\":\"x\"}}}}\n"))
            .starts_with("line 4: the fault is None")
    );
    assert_eq!(after_begin("{\"outcome\":{}}\n"), "line 2: there is no call under way");
    assert_eq!(after_begin("{\"ack\":{\"owner\":\"id0\"}}\n"), "line 2: no such event was delivered");
    let deliver = "{\"deliver\":{\"on\":\"ch0\",\"event\":\"ESTABLISHED on id0\"}}\n";
    assert_eq!(
        after_begin(&format!("{open}{call}{{\"outcome\":{{}}}}\n{deliver}")),
        "line 5: there is no event to take"
    );
    let destroy = "{\"submit\":{\"id\":\"id7\",\"request\":\"destroy\"}}\n";
    assert!(after_begin(destroy).contains("there is no such id"));
}

/// The trace of a program that crashes ends at any line. It can be replayed up to there.
#[test]
fn a_recording_can_end_at_any_line() {
    for text in texts(SIM).iter().take(2) {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1).filter(|&end| end < text.len());
        for (line, end) in ends.enumerate() {
            assert_eq!(play(&text.as_bytes()[..end]), Ok(false), "up to line {}", line + 1);
        }
    }
}

/// Every line of a recording is necessary: removing one causes an error, or the end is missing.
#[test]
fn no_line_can_be_left_out() {
    let mut tried = 0;
    for name in [KERNEL, SIM] {
        // The third recording depends on the second.
        for text in &texts(name)[..2] {
            assert_eq!(play(text.as_bytes()), Ok(true), "{name}");
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                // Exceptions: a missing time is replaced by the next one, a `yield` only compares, and a refused
                // request changes nothing.
                if line.starts_with("{\"time\"") || line.starts_with("{\"yield\"") || line.contains("\"refused\"") {
                    continue;
                }
                let rest: Vec<_> = lines[..at].iter().chain(&lines[at + 1..]).map(|line| format!("{line}\n")).collect();
                assert!(play(rest.concat().as_bytes()) != Ok(true), "{name}, line {} is of no use: {line}", at + 1);
                tried += 1;
            }
        }
    }
    assert!(tried > 100);
}

/// Every recorded result of the core is compared.
#[test]
fn no_answer_can_be_another() {
    let mut tried = 0;
    for text in &texts(KERNEL)[..2] {
        assert_eq!(play(text.as_bytes()), Ok(true));
        let answers = [
            "\"state\":\"",
            "\"is\":\"known",
            "\"is\":\"ch",
            "\"refused\":\"",
            "\"event\":\"",
            "\"call\":\"",
            "\"ids\":",
        ];
        for answer in answers {
            for (at, _) in text.match_indices(answer) {
                let mut other = text.clone();
                let end = at + answer.len();
                let digit = if answer.ends_with("ids\":") { "9" } else { "x" };
                other.insert_str(end, digit);
                // The limits are an input and not a result.
                if at > BEGIN.len() {
                    assert!(play(other.as_bytes()).is_err(), "byte {at}: {}", &text[at..end + 20]);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 80, "{tried}");
}

/// Damage to a recording: a part is lost, duplicated or changed.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Cut(usize, usize),
    Double(usize),
    Lose(usize),
    Swap(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        (any::<usize>(), 0..200usize).prop_map(|(at, len)| Damage::Cut(at, len)),
        any::<usize>().prop_map(Damage::Double),
        any::<usize>().prop_map(Damage::Lose),
        (any::<usize>(), any::<usize>()).prop_map(|(one, other)| Damage::Swap(one, other)),
    ]
}

fn damaged(mut text: Vec<u8>, damage: &Damage) -> Vec<u8> {
    let len = text.len().max(1);
    match *damage {
        Damage::Byte(at, byte) => {
            if let Some(place) = text.get_mut(at % len) {
                *place = byte;
            }
            return text;
        }
        Damage::Cut(at, by) => {
            let at = at % len;
            drop(text.drain(at..(at + by).min(text.len())));
            return text;
        }
        Damage::Double(_) | Damage::Lose(_) | Damage::Swap(..) => {}
    }
    let mut lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    let count = lines.len().max(1);
    match *damage {
        Damage::Double(at) if !lines.is_empty() => lines.insert(at % count, lines[at % count]),
        Damage::Lose(at) if !lines.is_empty() => drop(lines.remove(at % count)),
        Damage::Swap(one, other) if !lines.is_empty() => lines.swap(one % count, other % count),
        Damage::Double(_) | Damage::Lose(_) | Damage::Swap(..) | Damage::Byte(..) | Damage::Cut(..) => {}
    }
    lines.concat()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn nothing_makes_a_panic(which in 0..3usize, kernel: bool, by in prop::collection::vec(damage(), 1..4)) {
        let text = texts(if kernel { KERNEL } else { SIM }).swap_remove(which).into_bytes();
        let text = by.iter().fold(text, damaged);
        // Any result is correct; a panic is not.
        let _ = play(&text);
    }

    #[test]
    fn nor_do_other_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(play(&bytes).is_err());
    }
}
