//! The program on the committed recordings.

use std::path::PathBuf;
use std::process::{Command, Output};

fn recording(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../tests/recorded", name].iter().collect()
}

fn replay(arguments: &[&std::ffi::OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cmid-replay")).args(arguments).output().expect("cmid-replay runs")
}

#[test]
fn a_recording_of_several_drivers_is_replayed() {
    let files = ["linux-6.12", "linux-6.12.2", "linux-6.12.3"].map(recording);
    let output = replay(&files.each_ref().map(|file| file.as_os_str()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("[id0: - -> idle]"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("and reached the recorded end")).count(), 3, "{text}");
    // Each file says which keys are its own.
    let output = replay(&["sim", "sim.2", "sim.3"].map(recording).each_ref().map(|file| file.as_os_str()));
    let text = String::from_utf8_lossy(&output.stdout);
    for of in ["sim: core 0, ", "sim.2: core 1, ", "sim.3: core 2, "] {
        assert!(text.contains(of), "{of} in {text}");
    }
}

/// A changed recording differs from its replay in that line.
#[test]
fn a_recording_that_does_not_agree_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (changed, chart) = (folder.path().join("changed"), folder.path().join("chart.mmd"));
    let text = std::fs::read_to_string(recording("sim")).expect("the recording");
    let state = r#""out":"resolving address""#;
    assert!(text.contains(state));
    std::fs::write(&changed, text.replacen(state, r#""out":"bound""#, 1)).expect("the changed recording");
    let output = replay(&[changed.as_os_str(), "--quiet".as_ref(), "--chart".as_ref(), chart.as_os_str()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("changed, line "), "{text}");
    // The chart ends there.
    assert!(std::fs::read_to_string(&chart).expect("the chart").starts_with("sequenceDiagram"));
}

#[test]
fn an_error_without_a_place_to_print_it_is_a_status() {
    let full = std::fs::File::create("/dev/full").expect("/dev/full");
    let program = Command::new(env!("CARGO_BIN_EXE_cmid-replay")).arg("/no/such/file").stderr(full).status();
    assert_eq!(program.expect("cmid-replay runs").code(), Some(1));
}
