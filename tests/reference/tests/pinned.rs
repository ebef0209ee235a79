//! Checks that each pinned input still reaches the situation in its name.
//!
//! A change of the script or of the core can change the course of an input, which then passes without reaching the
//! situation. The relevant steps are therefore expected here, in order, with others in between.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cmid_reference::{TARGETS, Target};

/// An input, and parts of some of its steps.
struct Pinned {
    target: &'static str,
    name: &'static str,
    steps: &'static [&'static str],
}

const PINNED: &[Pinned] = &[
    Pinned {
        target: "ops",
        name: "acks-owed-by-a-request",
        steps: &[
            "listener: Some(id0), kind: ConnectRequest",
            "call Migrate { id: id1, from: ch0, to: ch1 }",
            "delivers ADDRINFO_ERROR of id1 on ch1",
            "Migrate { to: Some(ch1) } on id0 until Time(21): Ok",
            "Migrate { to: Some(ch6) } on id0 until Time(18446744073709551615): Ok",
        ],
    },
    Pinned {
        target: "ops",
        name: "channel-fails-and-is-read-again",
        steps: &["core 0: pauses ch2: Ok", "core 0: 32 reads of ch2 fail", "core 0: resumes ch2: Ok"],
    },
    Pinned {
        target: "ops",
        name: "late-event-tells-where-the-device-has-the-id",
        steps: &[
            "Migrate { to: Some(ch0) } on id0 until Time(18446744073709551615): Ok",
            "RawEvent { id: id0, listener: None, kind: AddrChange",
            "call Migrate { id: id0, from: ch1, to: ch0 }",
            "call CloseChannel { channel: ch1 }",
        ],
    },
    Pinned {
        target: "ops",
        name: "listens-again-with-ids-of-requests-on-its-channel",
        steps: &[
            "Listen { backlog: 0 } on id0",
            "listener: Some(id0), kind: ConnectRequest",
            "other ids are on its channel",
        ],
    },
    Pinned {
        target: "ops",
        name: "listens-again-with-untaken-requests",
        steps: &[
            "Listen { backlog: -1 } on id0",
            "id: id1, listener: Some(id0), kind: ConnectRequest",
            "id: id2, listener: Some(id0), kind: ConnectRequest",
            "migrate_id on id0 while idle: ENOMEM",
            "Listen { backlog: 1 } on id0 until Time(18446744073709551615): Err",
        ],
    },
    Pinned {
        target: "ops",
        name: "listens-elsewhere-after-a-listen-that-failed",
        steps: &[
            "id: id1, listener: Some(id0), kind: ConnectRequest",
            "listen on id0 while idle: ENOMEM",
            "call Accept { id: id1",
            "call Migrate { id: id0, from: ch0, to: ch2 }",
            "Listen { backlog: -1 } on id0 until Time(18446744073709551615): Ok",
        ],
    },
    Pinned {
        target: "ops",
        name: "request-before-the-device-listens",
        steps: &[
            "on id1 until",
            "id: id4, listener: Some(id1), kind: ConnectRequest",
            "call Migrate { id: id1, from: ch2, to: ch3 }",
            "Accept {",
            "call Migrate { id: id4, from: ch3, to: ch2 }",
        ],
    },
    Pinned {
        target: "faithful",
        name: "accept-that-could-not-move-the-id",
        steps: &[
            "CONNECT_REQUEST of id10 off",
            "Migrate { id: id10, from: ch2, to: ch0 } is made: Err",
            "Migrate { id: id10, from: ch2, to: ch0 } has returned Err",
            "} of id10 until",
            "Migrate { id: id10, from: ch2, to: ch0 } is made: Ok",
            "Accept { id: id10",
        ],
    },
    Pinned {
        target: "faithful",
        name: "crossing-teardown",
        steps: &[
            "asks Teardown of id0.2",
            "Disconnect { id: id0.2 } is made",
            "PeerDisconnects to Some(id0.2)",
            "DISCONNECTED of id0.2",
            "Disconnect { id: id0.2 } is made",
        ],
    },
    Pinned {
        target: "faithful",
        name: "deadline-passes-while-an-accept-moves-the-id",
        steps: &[
            "asks Accept",
            "Migrate { id: id5, from: ch6, to: ch0 } is made: Ok",
            "Deadline { id: id5, request_kind: Accept",
            "Migrate { id: id5, from: ch6, to: ch0 } has returned Ok",
            "takes DEADLINE_PASSED(accept) of id5 off ch0",
        ],
    },
    Pinned {
        target: "faithful",
        name: "destroy-gives-up-while-an-accept-moves-the-id",
        steps: &[
            "} of id1.3 until",
            "Migrate { id: id1.3, from: ch3.3, to: ch1.4 } is made: Ok",
            "asks Destroy of id1.3",
            "Deadline { id: id1.3, request_kind: Destroy",
            "Migrate { id: id1.3, from: ch3.3, to: ch1.4 } has returned Ok",
        ],
    },
    Pinned {
        target: "faithful",
        name: "id-moves-to-where-its-events-are-delivered",
        steps: &[
            "Listen { id: id0",
            "has returned Err",
            "asks Migrate { to: Some(ch0) } of id0",
            "id0's events go to the end of ch0",
        ],
    },
    Pinned {
        target: "faithful",
        name: "leave-overtaken-by-destroys-that-gave-up",
        steps: &[
            "asks Leave { group: grp0 } of id0",
            "asks Destroy of id0",
            "Deadline { id: id0, request_kind: Destroy",
            "asks Destroy of id0",
            "Deadline { id: id0, request_kind: Destroy",
            "Leave { id: id0, group: grp0",
            "} has returned",
        ],
    },
    Pinned {
        target: "faithful",
        name: "listener-moves-twice",
        steps: &[
            "CONNECT_REQUEST of id6 on ch2",
            "asks Migrate { to: Some(ch7) } of id0",
            "asks Migrate { to: Some(ch8) } of id0",
            "takes CONNECT_REQUEST of id6 off ch8",
            "Migrate { id: id6, from: ch2, to: ch8 } is made: Ok",
            "Accept { id: id6",
        ],
    },
    Pinned {
        target: "faithful",
        name: "listener-waits-for-a-channel-that-fails-to-open",
        steps: &[
            "Some(Listening)",
            "OpenChannel { channel: ch9 } has returned Err",
            "takes MIGRATED of id0 off ch9, status -9",
        ],
    },
    Pinned {
        target: "faithful",
        name: "paused-listener-is-read-later",
        steps: &[
            "pauses ch4: Ok",
            "Request to Some(id0)",
            "takes CONNECT_REQUEST of id11.2 off ch2",
            "resumes ch4: Ok",
            "CONNECT_REQUEST of id7.2 on ch4",
        ],
    },
    Pinned {
        target: "faithful",
        name: "refused-join-is-told-late-and-left",
        steps: &[
            "Join { id: id0, group: grp0, addr: 239.1.1.1:0, send_only: true } is made: Err(ENXIO)",
            "asks Destroy of id0",
            "Deadline { id: id0, request_kind: Destroy",
            "Join { id: id0, group: grp0, addr: 239.1.1.1:0, send_only: true } has returned Err(ENXIO): None",
            "asks Leave { group: grp0 } of id0",
            "Leave { id: id0, group: grp0, addr: 239.1.1.1:0 } is made: Err(EADDRNOTAVAIL)",
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
            "asks Teardown of id3",
            "Disconnect { id: id3 } is made",
            "PeerDisconnects to Some(id3)",
            "DISCONNECTED of id3",
            "Disconnect { id: id3 } is made",
        ],
    },
    Pinned {
        target: "migrate",
        name: "deadline-told-after-moving-into-synchronous-mode",
        steps: &[
            "Deadline { id: id7, request_kind: Accept",
            "asks Migrate { to: None } of id7",
            "Migrate { id: id7, from: ch0, to: ch3 } has returned Ok",
            "takes DEADLINE_PASSED(accept) of id7 off ch3",
        ],
    },
    Pinned {
        target: "migrate",
        name: "listener-moves-twice",
        steps: &[
            "CONNECT_REQUEST of id4 on ch2.3",
            "asks Migrate { to: Some(ch0) } of id1",
            "asks Migrate { to: Some(ch1) } of id1",
            "takes CONNECT_REQUEST of id4 off ch1",
            "Migrate { id: id4, from: ch2.3, to: ch1 } is made: Ok",
            "Accept { id: id4",
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
        let taken = cmid_reference::steps(target(of), &input);
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
