//! Replays committed recordings of a real kernel and of the simulator: the core still makes the same calls and
//! deliveries, and has the same states.
//!
//! A change of the core's behaviour, or of the wording of answers, fails here. If the change is intended, record anew
//! with the commands of `docs/trace.md`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use cmid_proto::Time;
use cmid_trace::{Arrow, Chart, ChartFormat, Recording, Transition, replay};
use common::{KERNEL, SIM, recordings};

#[test]
fn the_kernels_recording_comes_to_its_end() {
    comes_to_its_end(KERNEL);
}

#[test]
fn the_simulators_recording_comes_to_its_end() {
    comes_to_its_end(SIM);
}

fn comes_to_its_end(name: &str) {
    let recordings = recordings(name);
    assert!(recordings.iter().all(Recording::is_whole));
    let mut steps = Vec::new();
    // The simulator's cores are numbered, and so are their keys.
    let unnumbered = |step: String| (0..9).fold(step, |step, core| step.replace(&format!("s{core}/"), ""));
    let cores = replay(&recordings, |which, step| steps.push((which, unnumbered(step.to_string()))))
        .unwrap_or_else(|wrong| panic!("recording {}, {wrong}", wrong.recording + 1));
    for core in &cores {
        core.check();
        assert_eq!(core.ids().count(), 0);
    }
    // The recording contains the steps that it was made for.
    for part in [
        "MIGRATED on id0",
        "to ch1",
        "ROUTE_RESOLVED on id0, on ch1",
        "[id0: connecting -> responded]",
        r#"data "hello"/"#,
        r#"data "welcome"/"#,
        "release id1, number",
        "DISCONNECTED",
        "TIMEWAIT_EXIT",
        "refused: establish on id",
        "EADDR",
        "DEADLINE_PASSED(resolve_addr)",
    ] {
        assert!(steps.iter().any(|(_, step)| step.contains(part)), "{name} has no {part:?}");
    }
    // Each step that carries private data shows it.
    for of in ["app  > core", "core >  device", "core  < device", "app <  core"] {
        let is_shown = |step: &str| step.contains(of) && step.contains(r#"data "hello""#);
        assert!(steps.iter().any(|(_, step)| is_shown(step)), "{name}: {of}");
    }
    assert!(steps.iter().any(|(which, step)| *which == 2 && step.contains("adopt id0 on ch1, number")), "{name}");
}

#[test]
fn whoever_adopts_needs_the_recording_of_who_released() {
    let recordings = recordings(SIM);
    let wrong = replay(&recordings[2..], |_, _| {}).unwrap_err();
    assert!(wrong.to_string().ends_with("release 1, which this line adopts: give the other driver's too"), "{wrong}");
    assert_eq!((wrong.recording, format!("{wrong:?}")), (0, wrong.to_string()));
    // The index is that of the recording at fault.
    let wrong = replay(&[&recordings[..1], &recordings[2..]].concat(), |_, _| {}).unwrap_err();
    assert_eq!(wrong.recording, 1);
}

#[test]
fn charts_are_drawn() {
    let recordings = recordings(KERNEL);
    let mut chart = Chart::default();
    let first = std::slice::from_ref(&recordings[0]);
    replay(first, |which, step| chart.add(which, step)).unwrap();
    let mermaid = chart.draw(ChartFormat::Mermaid);
    assert!(mermaid.starts_with("sequenceDiagram\n    participant application\n"), "{mermaid}");
    for line in [
        "    application->>core: create id, TCP on ch0: id0\n    core->>device: CreateId { id: id0, channel: ch0, port_space: Tcp }\n    \
         device-->>core: done: create_id on id0\n    Note over core: id0: - -> idle\n",
        "    core->>device: Migrate { id: id0, from: ch0, to: ch1 }\n    device-->>core: done: migrate_id on id0: from ch0 to ch1\n",
        "    core->>application: MIGRATED on id0, on ch1\n",
        "    device->>core: event id0: ROUTE_RESOLVED, on ch1\n",
    ] {
        assert!(mermaid.contains(line), "{line}{mermaid}");
    }
    let svg = chart.draw(ChartFormat::Svg);
    assert_eq!(svg.matches("marker-end").count(), mermaid.matches(">>").count());
    assert!(svg.contains("id0: - -&gt; idle") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_picture_has_each_text_as_a_whole_up_to_a_limit() {
    let draw = |text: &str| {
        let mut chart = Chart::default();
        let (arrow, text) = (Some(Arrow::DeviceToCore), text.to_owned());
        chart.add(0, &Transition { line: 2, at: Time::ZERO, id: None, before: None, after: None, arrow, text });
        chart.draw(ChartFormat::Svg)
    };
    let (fits, long) = ("a".repeat(100), "a".repeat(101));
    let wide = draw(&fits);
    assert!(wide.contains(&format!(">{fits}<title>")) && wide.contains("width=\"1700\""), "{wide}");
    let cut = draw(&long);
    assert!(cut.contains(&format!("…<title>{long}</title>")) && cut.contains("width=\"1700\""), "{cut}");
    assert!(draw("short").contains("width=\"1100\""));
}

#[test]
fn a_chart_has_the_lanes_of_each_driver_and_the_order_of_time() {
    let recordings = recordings(KERNEL);
    let (mut chart, mut times) = (Chart::default(), Vec::new());
    replay(&recordings, |which, step| {
        chart.add(which, step);
        times.extend(step.arrow.map(|_| (step.at, step.text.clone())));
    })
    .unwrap();
    let mermaid = chart.draw(ChartFormat::Mermaid);
    for lane in ["application 1", "core 1", "device 1", "application 3", "core 3", "device 3"] {
        assert!(mermaid.contains(&format!("    participant {lane}\n")), "{lane}");
    }
    assert!(times.windows(2).any(|pair| pair[0].0 > pair[1].0), "one recording is replayed after the other");
    times.sort_by_key(|&(at, _)| at);
    let said: Vec<_> = mermaid.lines().filter(|line| line.contains(">>")).collect();
    assert_eq!(said.len(), times.len());
    for ((_, text), line) in times.iter().zip(said) {
        assert!(line.ends_with(&text.replace([';', '#', '%'], " ")), "{line}: {text}");
    }
    let letters = times.iter().map(|(_, text)| text.chars().count().min(100)).max().unwrap();
    assert!(letters > 60, "{letters}");
    let width = format!("width=\"{}\"", 3 * 2 * (150 + 7 * letters));
    assert!(chart.draw(ChartFormat::Svg).contains(&width), "{width}");
}
