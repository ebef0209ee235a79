//! `replog torture`: kills and pauses replicas at random moments while clients append, and checks the log at the end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use replog::client::Client;
use replog::protocol::{Index, ReplicaId};
use replog::wire::Reply;

use crate::args::{Local, Transport};
use crate::processes::{MEMBERS, PATIENCE, Processes};

/// The number of clients. Each appends one record after the other.
const CLIENTS: usize = 4;

/// An acknowledged record.
struct Done {
    data: String,
    invoked: Instant,
    returned: Instant,
    index: Index,
}

pub(crate) fn run(local: &Local, transport: Transport, rounds: u32, seed: Option<u64>) -> Result<()> {
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut processes = Processes::start(local, transport)?;
    let addrs = processes.clients();
    let (ends, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        let append = |number: usize| {
            let (addrs, ends, count) = (&addrs, &ends, &count);
            move || append(number, &mut Client::new(addrs), ends, count)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(append(number))).collect();
        let result = (0..rounds).try_for_each(|round| {
            disturb(&mut processes, &mut random, local.election_timeout, &count)
                .with_context(|| format!("round {round} of seed {seed}"))
        });
        ends.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for client in clients {
            done.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        result.map(|()| done)
    })?;
    check(&processes, done).with_context(|| format!("seed {seed}"))?;
    println!("{rounds} rounds: ok");
    Ok(())
}

/// Appends until the end.
fn append(number: usize, client: &mut Client, ends: &AtomicBool, count: &AtomicU64) -> Result<Vec<Done>> {
    let mut done = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let (data, invoked) = (format!("{number}/{}", done.len()), Instant::now());
        let index = client.append(data.as_bytes(), PATIENCE)?;
        done.push(Done { data, invoked, returned: Instant::now(), index });
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(done)
}

/// Kills or pauses one replica for a while. Then the clients must succeed again.
fn disturb(processes: &mut Processes, random: &mut fastrand::Rng, timeout: u64, count: &AtomicU64) -> Result<()> {
    let victim: ReplicaId = if random.bool() { processes.leader()? } else { random.usize(..MEMBERS) };
    let while_down = Duration::from_millis(random.u64(..3 * timeout));
    thread::sleep(Duration::from_millis(random.u64(..timeout)));
    if random.u8(..3) == 0 {
        // A paused leader is deposed, and continues as if it led.
        processes.pause(victim, true)?;
        thread::sleep(while_down);
        processes.pause(victim, false)?;
    } else {
        processes.kill(victim)?;
        thread::sleep(while_down);
        processes.start_replica(victim)?;
    }
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    while count.load(Ordering::Relaxed) < before + CLIENTS as u64 {
        ensure!(start.elapsed() < PATIENCE, "no record is appended within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Compares the logs of all replicas with each other and with what the clients have seen.
fn check(processes: &Processes, mut done: Vec<Done>) -> Result<()> {
    let leader = processes.leader()?;
    let last = commit(processes, leader)?;
    let logs = (0..MEMBERS).map(|id| read_log(processes, id, last)).collect::<Result<Vec<_>>>()?;
    ensure!(logs.iter().all(|log| *log == logs[0]), "the logs of the replicas differ");
    let mut known = HashSet::new();
    for data in logs[0].iter().filter(|data| !data.is_empty()) {
        ensure!(known.insert(data), "{:?} is in the log twice", String::from_utf8_lossy(data));
    }
    for Done { data, index, .. } in &done {
        let stored = logs[0].get(*index as usize - 1);
        ensure!(stored.is_some_and(|stored| stored == data.as_bytes()), "{data} is not at {index}");
    }
    done.sort_by_key(|done| done.index);
    let mut latest = None;
    for done in &done {
        latest = latest.max(Some(done.invoked));
        ensure!(Some(done.returned) >= latest, "{} is behind a later record", done.data);
    }
    println!("{} records acknowledged, {last} in the log of each replica", done.len());
    Ok(())
}

fn commit(processes: &Processes, id: ReplicaId) -> Result<Index> {
    let reply = Client::new(&processes.clients()[id..=id]).status()?;
    let Reply::Status { commit, .. } = reply else { bail!("an unexpected reply: {reply:?}") };
    Ok(commit)
}

/// Reads the committed records of a replica, once it has all.
fn read_log(processes: &Processes, id: ReplicaId, last: Index) -> Result<Vec<Vec<u8>>> {
    let start = Instant::now();
    // A replica that has just been started does not serve clients yet.
    while commit(processes, id).unwrap_or(0) < last {
        ensure!(start.elapsed() < PATIENCE, "replica {id} does not catch up");
        thread::sleep(Duration::from_millis(10));
    }
    let mut client = Client::new(&processes.clients()[id..=id]);
    (1..=last).map(|index| client.read(index)?.context("a committed record is missing")).collect()
}
