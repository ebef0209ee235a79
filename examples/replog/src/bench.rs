//! `replog bench`: appends per second and latency over RDMA, relative to the same program over TCP.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use replog::client::Client;

use crate::args::{Local, Transport};
use crate::processes::{PATIENCE, Processes};

/// The bytes of a record.
const RECORD: [u8; 100] = [7; 100];

/// The numbers of clients that append at the same time, each one record after the other.
const CLIENTS: [usize; 3] = [1, 4, 16];

/// What one run has measured.
#[derive(Clone, Copy, Debug)]
struct Figures {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

pub(crate) fn run(local: &Local, seconds: u64) -> Result<()> {
    println!("| clients | transport | appends per second | p50 in us | p99 in us |");
    println!("| --- | --- | --- | --- | --- |");
    for clients in CLIENTS {
        let mut measured = Vec::new();
        for (name, transport) in [("TCP", Transport::Tcp), ("RDMA", Transport::Rdma)] {
            let processes = Processes::start(local, transport)?;
            let figures = measure(&processes, clients, Duration::from_secs(seconds))?;
            let Figures { per_second, p50, p99 } = figures;
            println!("| {clients} | {name} | {per_second:.0} | {} | {} |", p50.as_micros(), p99.as_micros());
            measured.push(figures);
        }
        if let [tcp, rdma] = measured[..] {
            let ratio = |of: fn(&Figures) -> f64| of(&rdma) / of(&tcp);
            println!(
                "| {clients} | RDMA / TCP | {:.2} | {:.2} | {:.2} |",
                ratio(|it| it.per_second),
                ratio(|it| it.p50.as_secs_f64()),
                ratio(|it| it.p99.as_secs_f64())
            );
        }
    }
    Ok(())
}

fn measure(processes: &Processes, clients: usize, span: Duration) -> Result<Figures> {
    let addrs = processes.clients();
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
    latencies.sort_unstable();
    let quantile = |share: usize| latencies.get(latencies.len() * share / 100).copied().unwrap_or_default();
    Ok(Figures { per_second: latencies.len() as f64 / span.as_secs_f64(), p50: quantile(50), p99: quantile(99) })
}
