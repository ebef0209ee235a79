//! Asynchronous events of soft-RoCE.

use std::process::Command;
use std::time::{Duration, Instant};

use cmid_proto::datapath::{AsyncEvent, AsyncEventKind, AsyncSource, prelude::*};

use crate::env::{CLIENT, Side, readable};

fn ip(arguments: &[&str]) -> String {
    let done = Command::new("ip").args(arguments).output().expect("ip(8)");
    assert!(done.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// An address that comes and goes changes the GID table. Two readers of one device share its events.
pub(crate) fn address_changes() {
    let mut side = Side::new();
    let id = side.bound(CLIENT);
    let nic = side.device.device_of(id).expect("device_of");
    assert_eq!((nic.name(), nic.port_num()), ("rxe0", 1));
    let mut events = side.device.async_events(&nic).expect("async_events");
    // Those of other checks.
    while events.next_event().expect("next_event").is_some() {}
    let listed = ip(&["-o", "-4", "addr", "show", "to", "10.99.0.1"]);
    let interface = listed.split_whitespace().nth(1).expect("an interface");
    let expected = AsyncEvent { kind: AsyncEventKind::GID_CHANGE, source: AsyncSource::Port(1) };
    for change in ["add", "del"] {
        ip(&["addr", change, "10.99.0.77/24", "dev", interface]);
        assert!(readable(events.fd(), Instant::now() + Duration::from_secs(5)), "no event");
        assert_eq!(events.next_event(), Ok(Some(expected)), "{change}");
        while events.next_event().expect("next_event").is_some() {}
    }
}
