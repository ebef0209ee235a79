//! The program on the simulated fabric, and its errors.

use std::process::{Command, Output};

use cmid_check::{Figures, Outcome, Report};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cmid-check")).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_behaviour_passes_or_is_not_supported() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("report.json");
    let file = json.to_str().expect("a name in UTF-8");
    let output = run(&["--device", "sim", "--pings", "20", "--connections", "5", "--json", file]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));

    let report: Report = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("a report in JSON");
    assert_eq!(format!("{report}"), printed);
    let [device] = &report.devices[..] else { panic!("one device: {printed}") };
    let with = |outcome| device.behaviours.iter().filter(|behaviour| behaviour.outcome == outcome).count();
    // The simulated provider re-registers no more than that of soft-RoCE.
    assert_eq!((with(Outcome::Pass), with(Outcome::NotSupported)), (13, 3), "{printed}");
    let figures = &device.figures;
    assert!([figures.ping_us, figures.post_ns, figures.poll_ns, figures.connections_per_s].iter().all(Option::is_some));
    assert_eq!(report.host.kernel, text(&Command::new("uname").arg("-r").output().expect("uname").stdout).trim());
}

/// Parsed by its fast way, serde_json's floats differ by the last bit, and 250.05 is then another text.
#[test]
fn figures_are_read_as_they_were_written() {
    for nanoseconds in 0..100_000_u32 {
        let figures = Figures { ping_us: Some(f64::from(nanoseconds) / 1e9 * 1e6), ..Figures::default() };
        let json = serde_json::to_string(&figures).expect("JSON");
        assert_eq!(serde_json::from_str::<Figures>(&json).expect("figures"), figures, "{json}");
    }
}

/// The report of a bug has the versions where nothing works.
#[test]
fn the_report_of_an_error_has_the_versions() {
    let json = tempfile::NamedTempFile::new().expect("a file");
    let file = json.path().to_str().expect("a name in UTF-8");
    let output = run(&["--device", "sim", "--address", "10.0.0.1", "--json", file]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    let report: Report = serde_json::from_reader(&json).expect("a report in JSON");
    assert!(!report.cmid.is_empty() && !report.host.kernel.is_empty() && report.devices.is_empty(), "{report}");
    let error = report.error.expect("an error");
    assert_eq!(text(&output.stderr), format!("cmid-check: {error}\n"));
}

/// A measurement of nothing would be a failure of the device, or 0 per second.
#[test]
fn something_is_measured() {
    for option in ["--pings", "--connections"] {
        let output = run(&["--device", "sim", option, "0"]);
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output.stderr));
    }
}

/// Their exit status is not that of a failed behaviour.
#[test]
fn errors_of_the_user_are_one_line() {
    let cases: [&[&str]; 2] = [
        &["--device", "sim", "--address", "10.0.0.1"],
        &["--device", "sim", "--pings", "1", "--connections", "1", "--json", "/no/such/folder/report.json"],
    ];
    for arguments in cases {
        let output = run(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.starts_with("cmid-check: "), "{arguments:?}: {error}");
    }
}
