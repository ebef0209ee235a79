//! `replog bench`: appends per second and latency over RDMA, relative to the same program over TCP.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use replog::client::Client;

use crate::args::{Local, Transport};
use crate::processes::Processes;
use crate::torture::PATIENCE;

/// The bytes of a record.
const RECORD: [u8; 100] = [7; 100];

/// The numbers of concurrent clients. Each appends one record after the other.
const CLIENTS: [usize; 3] = [1, 4, 16];

/// The number of measurements for each number of clients. The transports alternate, so that a change of the machine's
/// load affects both.
const ROUNDS: u32 = 3;

/// The results of a transport with a number of clients.
#[derive(Clone, Copy, Debug)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Figures {
    fn of(mut latencies: Vec<Duration>, span: Duration) -> Self {
        latencies.sort_unstable();
        let quantile = |share: usize| latencies.get(latencies.len() * share / 100).copied().unwrap_or_default();
        Figures { per_second: latencies.len() as f64 / span.as_secs_f64(), p50: quantile(50), p99: quantile(99) }
    }
}

/// Measures each number of clients on both transports.
pub(crate) fn run(local: &Local, seconds: u64) -> Result<()> {
    say!("| clients | transport | appends per second | p50 in us | p99 in us |")?;
    say!("| --- | --- | --- | --- | --- |")?;
    for clients in CLIENTS {
        let mut latencies = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (latencies, transport) in latencies.iter_mut().zip([Transport::Tcp, Transport::Rdma]) {
                let processes = Processes::start(local, transport)?;
                latencies.extend(measure(&processes, clients, Duration::from_secs(seconds))?);
            }
        }
        let [tcp, rdma] = latencies.map(|it| Figures::of(it, Duration::from_secs(seconds) * ROUNDS));
        for (name, Figures { per_second, p50, p99 }) in [("TCP", &tcp), ("RDMA", &rdma)] {
            say!("| {clients} | {name} | {per_second:.0} | {} | {} |", p50.as_micros(), p99.as_micros())?;
        }
        let ratio = |of: fn(&Figures) -> f64| of(&rdma) / of(&tcp);
        let [p50, p99] = [ratio(|it| it.p50.as_secs_f64()), ratio(|it| it.p99.as_secs_f64())];
        say!("| {clients} | RDMA / TCP | {:.2} | {p50:.2} | {p99:.2} |", ratio(|it| it.per_second))?;
    }
    Ok(())
}

fn measure(processes: &Processes, clients: usize, span: Duration) -> Result<Vec<Duration>> {
    let addrs = processes.addrs();
    let barrier = Barrier::new(clients);
    let start = || -> Result<Vec<Duration>> {
        let mut client = Client::new(&addrs);
        // Finds the leader.
        let connected = client.append(&RECORD, PATIENCE);
        barrier.wait();
        connected?;
        let (start, mut latencies) = (Instant::now(), Vec::new());
        while start.elapsed() < span {
            let sent = Instant::now();
            client.append(&RECORD, PATIENCE)?;
            latencies.push(sent.elapsed());
        }
        Ok(latencies)
    };
    let mut latencies = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(start)).collect();
        threads.into_iter().try_for_each(|thread| {
            latencies.extend(thread.join().map_err(|_| anyhow!("a client panicked"))??);
            Ok::<_, anyhow::Error>(())
        })
    })?;
    Ok(latencies)
}
