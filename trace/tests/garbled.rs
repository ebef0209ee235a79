//! Recordings are untrusted input: errors are detected and reported, and no input causes a panic.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{self, BufReader, Read as _};

use cmid_trace::{Recording, Wrong, replay};
use common::{KERNEL, SIM, texts};
use proptest::prelude::*;

const BEGIN: &str = r#"{"begin":{"format":"cmid-trace","version":5,"limits":{"ids":4,"reserved_ids":0,"channels":4,"events":4,"reserved_events":0,"channel_events":4,"groups":4}}}"#;

/// Reads and replays one recording.
fn play(text: &[u8]) -> Result<bool, Wrong> {
    let recordings = [Recording::read(text)?];
    replay(&recordings, |_, step| drop(step.to_string()))?;
    Ok(recordings[0].is_whole())
}

fn wrong(text: &[u8]) -> String {
    play(text).unwrap_err().to_string()
}

fn after_begin(lines: &str) -> String {
    wrong(format!("{BEGIN}\n{lines}").as_bytes())
}

/// Reads a recording with this limit on ids, whose last line is as long.
fn with_long_end(ids: u32, len: u64) -> Result<Recording, Wrong> {
    let begin = BEGIN.replace("\"ids\":4", &format!("\"ids\":{ids}")) + "\n{\"in\":\"end\",\"out\":\"";
    let text = begin.as_bytes().chain(io::repeat(b'-').take(len)).chain(&b"\"}\n"[..]);
    Recording::read(BufReader::new(text))
}

#[test]
fn the_line_of_the_end_is_as_long_as_the_limits_permit() {
    let len = 17 << 20;
    assert!(with_long_end(1 << 20, len).unwrap().is_whole());
    assert_eq!(with_long_end(4, len).unwrap_err().to_string(), "line 2: the line is too long");
}

/// The memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    of.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn zeros_that_a_file_leaves_out_need_no_memory() {
    let param = r#"{"responder_resources":1,"initiator_depth":1,"flow_control":false,"retry_count":5,"rnr_retry_count":6,"srq":false,"qp_num":1}"#;
    let line =
        format!(r#"{{"in":{{"submit":{{"id":"id0","request":{{"connect":{{"param":{param}}}}},"data":"/65536"}}}}}}"#);
    // With the zeros it would be 512 MiB; other tests need some meanwhile.
    let text = format!("{BEGIN}\n{}", format!("{line}\n").repeat(8 << 10));
    let before = resident();
    let recording = Recording::read(text.as_bytes()).unwrap();
    let more = resident().saturating_sub(before);
    assert_eq!(recording.lines(), 1 + (8 << 10));
    assert!(more < 256 << 10, "{more} KiB for {} bytes", text.len());
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    assert_eq!(wrong(b""), "line 1: the trace is empty");
    assert_eq!(wrong(b"{\"in\":\"timeout\"}\n"), "line 1: column 16: missing field `begin`");
    assert_eq!(wrong(&BEGIN.as_bytes()[..40]), "line 1: the line is cut off");
    // Lines of other versions have other contents.
    for version in [4, 6] {
        let other =
            format!("{{\"begin\":{{\"format\":\"cmid-trace\",\"version\":{version},\"limits\":[]}}}}\n\"timeout\"\n");
        let what = format!("line 1: cmid-trace of version {version} is not cmid-trace of version 5");
        assert_eq!(wrong(other.as_bytes()), what);
    }
    let unlimited = BEGIN.replace("\"groups\":4", "\"rooms\":4") + "\n";
    assert!(wrong(unlimited.as_bytes()).starts_with("line 1: limits: unknown field `rooms`"));
    assert!(after_begin(&format!("{BEGIN}\n")).contains("unknown field `begin`"));
    assert_eq!(after_begin("{\"in\":{\"time\":1,\"x\":2}}\n{\"in"), "line 2: column 15: expected value");
    assert_eq!(after_begin("{\"in\":{\"time\":1}}\n\n"), "line 3: column 0: EOF while parsing a value");
    assert_eq!(after_begin("{\"in\":{\"time\":1,\"x\":2}}\n"), "line 2: column 15: expected value");
    assert!(after_begin("{\"in\":{\"readable\":\"id0\"}}\n").contains("\"id0\": it is not a key that begins with ch"));
    let bind = "{\"in\":{\"submit\":{\"id\":\"id0\",\"request\":{\"bind\":{\"addr\":\"10.0.0.1:1\",\"why\":1}}}}}\n";
    assert!(after_begin(bind).contains("unknown field `why`"));
    assert!(after_begin("\u{fffd}\n").starts_with("line 2: column 1: expected value"));
    assert!(wrong(&[BEGIN.as_bytes(), b"\n\"\xff\"\n"].concat()).starts_with("line 2: column"));
    let deep = "[".repeat(100_000);
    assert!(after_begin(&format!("{deep}\n")).starts_with("line 2: column"));
}

/// A terminal obeys control characters, and others change the order of what follows them.
#[test]
fn an_error_has_only_characters_that_can_be_printed() {
    let (escape, reverse) = ("\\u001b[2J", "\u{202e}");
    for words in [escape, reverse] {
        let format = wrong((BEGIN.replace("cmid-trace", words) + "\n").as_bytes());
        let limit = wrong((BEGIN.replace("groups", words) + "\n").as_bytes());
        let input = after_begin(&format!("{{\"in\":{{\"{words}\":1}}}}\n"));
        let answer = after_begin(&format!("{{\"in\":\"yield\",\"out\":\"{words}\"}}\n"));
        for what in [format, limit, input, answer] {
            let shown = ["\\u{1b}[2J", "\\u{202e}"].iter().any(|shown| what.contains(shown));
            assert!(shown && !what.contains(['\u{1b}', '\u{202e}']), "{}", what.escape_debug());
        }
    }
}

#[test]
fn a_core_that_does_otherwise_is_reported_with_its_line() {
    let open = "{\"in\":{\"open_channel\":\"explicit\"},\"out\":\"ch0\"}\n";
    let call = "{\"in\":\"call\",\"out\":\"OpenChannel { channel: ch0 }\"}\n";
    let timeout = "{\"in\":\"timeout\"}\n";
    let is = |lines: &[&str], what: &str| assert_eq!(after_begin(&lines.concat()), what);
    is(&[&open.replace("ch0", "ch1")], "line 2: the core answers: ch0; recorded was: ch1");
    is(&[call], "line 2: the core has no call");
    let what = "line 3: the core answers: OpenChannel { channel: ch0 }; recorded was: OpenChannel { channel: ch3 }";
    is(&[open, &call.replace("ch0", "ch3")], what);
    is(&[open, timeout], "line 3: the next step is: OpenChannel { channel: ch0 }; this line is another");
    is(&[open, call, timeout], "line 4: a call is under way, and this line is not its outcome");
    let outcome = |answer| format!("{{\"in\":{{\"outcome\":{{}}}}{answer}}}\n");
    for answer in ["idle", "fault: x"] {
        let line = outcome(format!(",\"out\":\"{answer}\""));
        is(&[open, call, &line], &format!("line 4: the core answers: nothing; recorded was: {answer}"));
    }
    is(&[&outcome(String::new())], "line 2: there is no call under way");
    let ack = "{\"in\":{\"ack\":{\"owner\":\"id0\"}}}\n";
    assert!(after_begin(ack).starts_with("line 2: the core answers: refused: the ack token of id0 is not valid here"));
    let deliver = "{\"in\":{\"deliver\":\"ch0\"},\"out\":\"ESTABLISHED on id0\"}\n";
    is(&[open, call, &outcome(String::new()), deliver], "line 5: there is no event to take");
    let destroy = "{\"in\":{\"submit\":{\"id\":\"id7\",\"request\":\"destroy\"}}}\n";
    assert!(after_begin(destroy).contains("there is no such id"));
}

/// The trace of a program that crashes ends at any line, and that on a disk that is full in any line. It can be replayed up to
/// there.
#[test]
fn a_recording_can_end_anywhere() {
    for text in texts(SIM).iter().take(2) {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1).filter(|&end| end < text.len());
        for (line, end) in ends.enumerate() {
            for end in [end, end + 1, end + 9] {
                assert_eq!(play(&text.as_bytes()[..end]), Ok(false), "up to line {}", line + 1);
            }
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
                if ["\"time\":", "\"yield\"", "\"refused: "].iter().any(|part| line.contains(part)) {
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
        for (at, answer) in text.match_indices("\"out\":\"") {
            let mut other = text.clone();
            other.insert(at + answer.len(), 'x');
            assert!(play(other.as_bytes()).is_err(), "byte {at}: {}", &text[at..at + 20]);
            tried += 1;
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
