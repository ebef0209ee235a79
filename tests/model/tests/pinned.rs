//! Checks that each pinned input still reaches the situation in its name.
//!
//! A change of the script or of the core can change the course of an input, which then passes without reaching the
//! situation. The relevant steps are therefore expected here, in order, with others in between.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cmid_model::{TARGETS, Target};

/// An input, and parts of some of its steps.
struct Pinned {
    target: &'static str,
    name: &'static str,
    steps: &'static [&'static str],
}

const PINNED: &[Pinned] = &[
    Pinned {
        target: "ops",
        name: "channel-fails-and-is-read-again",
        steps: &["core 0: pauses ch2: Ok", "core 0: 32 reads of ch2 fail", "core 0: resumes ch2: Ok"],
    },
    Pinned {
        target: "ops",
        name: "failed-channel-that-waited-for-room",
        steps: &[
            "OpenChannel { channel: ch5 }",
            "core 0: 31 reads of ch5 fail",
            "RawEvent { id: id9.2, listener: None, kind: User",
        ],
    },
    Pinned {
        target: "faithful",
        name: "accept-that-could-not-move-the-id",
        steps: &[
            "CONNECT_REQUEST of id4 off",
            "Migrate { id: id4, from: ch3, to: ch0 } is made: Err",
            "} of id4 until",
            "Migrate { id: id4, from: ch3, to: ch0 } is made: Ok",
            "Accept { id: id4",
        ],
    },
    Pinned {
        target: "faithful",
        name: "crossing-teardown",
        steps: &[
            "asks Teardown of id0",
            "Disconnect { id: id0 } is made",
            "PeerDisconnects to Some(id0)",
            "DISCONNECTED of id0",
            "Disconnect { id: id0 } is made",
        ],
    },
    Pinned {
        target: "faithful",
        name: "id-moves-to-where-its-events-are-delivered",
        steps: &[
            "Listen { id: id0, backlog: 0 } is made: Err",
            "asks Migrate { to: Some(ch0) } of id0",
            "id0's events go to the end of ch0",
        ],
    },
    Pinned {
        target: "faithful",
        name: "leave-repeated-after-a-destroy-that-gave-up",
        steps: &[
            "asks Leave { group: grp0 } of id0",
            "asks Destroy of id0",
            "Deadline { id: id0, request_kind: Destroy",
            "asks Leave { group: grp0 } of id0",
            "Leave { id: id0, group: grp0",
        ],
    },
    Pinned {
        target: "faithful",
        name: "listener-moves-twice",
        steps: &[
            "CONNECT_REQUEST of id0.2 on ch4.2",
            "asks Migrate { to: Some(ch1.2) } of id1.2",
            "asks Migrate { to: Some(ch3) } of id1.2",
            "takes CONNECT_REQUEST of id0.2 off ch3",
            "Migrate { id: id0.2, from: ch4.2, to: ch3 } is made: Ok",
            "Accept { id: id0.2",
        ],
    },
    Pinned {
        target: "faithful",
        name: "listener-waits-for-a-channel-that-is-closed",
        steps: &[
            "asks Migrate { to: Some(ch1) } of id0 until Time(18446744073709551615): Some(Listening)",
            "closes ch1",
            "takes MIGRATED of id0 off ch0, status -9",
        ],
    },
    Pinned {
        target: "faithful",
        name: "paused-listener-is-read-later",
        steps: &[
            "pauses ch2: Ok",
            "Request to Some(id0)",
            "takes CONNECT_REQUEST of id3 off ch1",
            "resumes ch2: Ok",
            "CONNECT_REQUEST of id4 on ch2",
        ],
    },
    Pinned {
        target: "kernel",
        name: "whole-connection",
        steps: &[
            "follows ADDR_RESOLVED of id0: Ok",
            "follows ROUTE_RESOLVED of id0: Ok",
            "follows CONNECT_RESPONSE of id0: Ok",
            "Disconnect on id0: Ok",
            "delivers Event { id: id0, listener: None, kind: Cm(Disconnected), status: 0",
        ],
    },
    Pinned {
        target: "migrate",
        name: "crossing-teardown",
        steps: &[
            "asks Teardown of id1",
            "Disconnect { id: id1 } is made",
            "PeerDisconnects to Some(id1)",
            "DISCONNECTED of id1",
            "Disconnect { id: id1 } is made",
        ],
    },
    Pinned {
        target: "migrate",
        name: "deadline-told-after-moving-into-synchronous-mode",
        steps: &[
            "Deadline { id: id5, request_kind: Accept",
            "asks Migrate { to: None } of id5",
            "Migrate { id: id5, from: ch0, to: ch4 } is made: Ok",
            "takes DEADLINE_PASSED(accept) of id5 off ch4",
        ],
    },
    Pinned {
        target: "migrate",
        name: "listener-moves-twice",
        steps: &[
            "CONNECT_REQUEST of id1 on ch2",
            "asks Migrate { to: Some(ch1) } of id0 until Time(18446744073709551615): Some(Listening)",
            "asks Migrate { to: Some(ch0) } of id0 until Time(18446744073709551615): Some(Listening)",
            "takes CONNECT_REQUEST of id1 off ch0",
            "Migrate { id: id1, from: ch2, to: ch0 } is made: Ok",
            "Accept { id: id1",
        ],
    },
    Pinned {
        target: "pair",
        name: "channel-fails-and-is-read-again",
        steps: &[
            "channel ch2 has failed, it is not read any more",
            "1: resumes ch2: Ok",
            "1: pauses ch2: Ok",
            "1: resumes ch2: Ok",
        ],
    },
    Pinned {
        target: "rereg",
        name: "memory-in-flight-when-the-device-goes",
        steps: &[
            "region 0: a receive into memory 1",
            "the devices go",
            "region 0: deregistration, InFlight: Err",
            "a poll writes to memory 1",
            "region 0: deregistration, Quiet: Ok",
            "region 0: Deregistered(Ok",
        ],
    },
];

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target")
}

#[test]
fn every_pinned_input_comes_to_what_its_name_tells() -> io::Result<()> {
    let mut lost = Vec::new();
    for Pinned { target: of, name, steps } in PINNED {
        let input = fs::read(corpus(of).join(format!("pinned-{name}")))?;
        let taken = cmid_model::steps(target(of), &input);
        let mut left = taken.iter();
        lost.extend(steps.iter().find(|&step| !left.any(|line| line.contains(step))).map(|step| (of, name, step)));
    }
    assert!(lost.is_empty(), "these come to something else, from these steps on: {lost:#?}");
    Ok(())
}

#[test]
fn every_pinned_input_is_described() -> io::Result<()> {
    let described: BTreeSet<_> = PINNED.iter().map(|it| (it.target, format!("pinned-{}", it.name))).collect();
    let mut committed = BTreeSet::new();
    for target in TARGETS {
        for entry in fs::read_dir(corpus(target.name))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            committed.extend(name.starts_with("pinned-").then_some((target.name, name)));
        }
    }
    assert_eq!(described, committed);
    Ok(())
}
