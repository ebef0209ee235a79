//! Wake-ups of idle drivers, on the real device.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use cmid_bench::results::{Row, Target};
use cmid_harness::{Make, OnBlocking, OnEpoll, OnMio};
use cmid_verbs::{Backend, Verbs};

use crate::idle::{FAR, wakeups};
use crate::measure::programs::ADDRESS;

const SPAN: Duration = Duration::from_secs(2);
/// The requests with deadlines use the ports after the listener's.
const PORTS: u16 = 20;

pub(crate) fn rows(port: &mut u16) -> Result<Vec<Row>> {
    Ok(vec![
        row::<OnEpoll<Verbs>>("epoll", port)?,
        row::<OnMio<Verbs>>("mio", port)?,
        row::<OnBlocking<Verbs>>("blocking", port)?,
    ])
}

fn row<W: Make<Verbs>>(driver: &str, port: &mut u16) -> Result<Row> {
    let at = SocketAddr::new(ADDRESS.parse()?, *port);
    *port += PORTS;
    let open = || Verbs::open_with(Backend::Librdmacm);
    let woken = wakeups::<W, _>([open()?, open()?], at, FAR, SPAN)?;
    let what = format!("idle cmid-{driver}, connected, with deadlines armed");
    Ok(Row {
        what,
        unit: "wake-ups/s".to_owned(),
        target: Some(Target::AtMost(0.0)),
        exact: true,
        figures: vec![woken as f64 / SPAN.as_secs_f64()],
        limit: Some(0.0),
        ..Row::default()
    })
}
