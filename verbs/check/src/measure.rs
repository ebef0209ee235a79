//! Measurements. Both sides poll their CQs; a side without a completion yields the processor.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cmid_proto::datapath::{Access, Completion, CompletionQueue as _, DataPath, QueuePair as _, SendWr, prelude::*};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::data::remote;
use crate::side::{DEPTH, OWN, Queues, SPAN};
use crate::wire::{Kind, Message, Role};

/// The length of the writes of the measurement of posts, in bytes.
const WRITE: usize = 8;

/// The number of pings and of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    pub(crate) pings: usize,
    pub(crate) connections: usize,
}

/// The results. A value is missing if its measurement failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes of a ping.
    pub ping_bytes: usize,
    /// The median of the time from the post of a send to the receive of the reply, in microseconds.
    pub ping_us: Option<f64>,
    /// Its 99th percentile.
    pub ping_p99_us: Option<f64>,
    /// The time to post an RDMA write of 8 bytes, in nanoseconds.
    pub post_ns: Option<f64>,
    /// The time to poll a completion, in nanoseconds.
    pub poll_ns: Option<f64>,
    /// Connections per second: resolved, with a QP, established and disconnected one after the other.
    pub connections_per_s: Option<f64>,
    /// Measurements that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// Makes all measurements.
pub(crate) fn measure<D: DataPath>(client: &Client<'_, D>, amount: Amount) -> Figures {
    let mut figures = Figures { ping_bytes: Message::LEN, ..Figures::default() };
    match ping(client, amount.pings) {
        Ok((median, p99)) => (figures.ping_us, figures.ping_p99_us) = (Some(median), Some(p99)),
        Err(error) => figures.errors.push(format!("ping: {error:#}")),
    }
    match post_and_poll(client, amount.pings) {
        Ok((post, poll)) => (figures.post_ns, figures.poll_ns) = (Some(post), Some(poll)),
        Err(error) => figures.errors.push(format!("post and poll: {error:#}")),
    }
    match connections(client, amount.connections) {
        Ok(rate) => figures.connections_per_s = Some(rate),
        Err(error) => figures.errors.push(format!("connections: {error:#}")),
    }
    figures
}

/// Median and 99th percentile in microseconds.
fn ping<D: DataPath>(client: &Client<'_, D>, pings: usize) -> Result<(f64, f64)> {
    let mut connected = client.connect(Role::Serve, Queues::Plain)?;
    // The first ones fill caches.
    for _ in 0..pings / 10 {
        connected.side.request(Kind::Echo, [0; 3])?;
    }
    let mut times = Vec::new();
    for _ in 0..pings {
        let begin = Instant::now();
        connected.side.request(Kind::Echo, [0; 3])?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    connected.disconnect()?;
    let at = |part: usize| times.get(times.len() * part / 100).map(|time| time.as_secs_f64() * 1e6);
    at(50).zip(at(99)).context("no ping")
}

/// Nanoseconds per posted write, and per polled completion.
fn post_and_poll<D: DataPath>(client: &Client<'_, D>, writes: usize) -> Result<(f64, f64)> {
    let mut connected = client.serve()?;
    let (to, _) = remote(&mut connected, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let from = connected.side.register(WRITE, Access::LOCAL_WRITE)?;
    let batch = DEPTH as usize / 2;
    let (mut posted, mut post_time, mut poll_time) = (0, Duration::ZERO, Duration::ZERO);
    let mut completions = [Completion::default(); DEPTH as usize];
    while posted < writes {
        let begin = Instant::now();
        for _ in 0..batch {
            connected.side.qp.post_send(SendWr::write(OWN, from.sge(0..WRITE), to)).context("posting a write")?;
        }
        post_time += begin.elapsed();
        posted += batch;
        let (mut polled, end) = (0, Instant::now() + SPAN);
        while polled < batch {
            let begin = Instant::now();
            let new = connected.side.cq.poll(&mut completions).context("polling")?;
            let took = begin.elapsed();
            ensure!(completions.iter().take(new).all(Completion::is_success), "a write failed");
            ensure!(begin < end, "a write did not complete");
            if new == 0 {
                std::thread::yield_now();
            } else {
                poll_time += took;
            }
            polled += new;
        }
    }
    connected.disconnect()?;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / posted as f64;
    ensure!(posted > 0, "nothing was posted");
    Ok((each(post_time), each(poll_time)))
}

fn connections<D: DataPath>(client: &Client<'_, D>, count: usize) -> Result<f64> {
    let begin = Instant::now();
    for _ in 0..count {
        client.serve()?.disconnect()?;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}
