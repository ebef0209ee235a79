//! `replog torture`: disturbs replicas at random moments while clients append, and checks the log at the end.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use replog::client::Client;
use replog::protocol::{Index, ReplicaId};
use replog::wire::Reply;

/// The limit of each step. Emulated machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The number of clients. Each appends one record after the other.
const CLIENTS: usize = 4;

/// An acknowledged record.
struct Done {
    data: String,
    invoked: Instant,
    returned: Instant,
    index: Index,
}

/// The replicas of a torture run.
pub(crate) trait Site {
    /// Returns their addresses for clients, in the order of their numbers.
    fn clients(&self) -> Vec<SocketAddr>;

    /// Disturbs a replica for a while. It runs again afterwards.
    fn disturb(&mut self, victim: ReplicaId, random: &mut fastrand::Rng, span: Duration) -> Result<()>;
}

/// Makes `rounds` disturbances. Their durations are in proportion to the election timeout, in milliseconds.
pub(crate) fn run(site: &mut impl Site, rounds: u32, seed: Option<u64>, election_timeout: u64) -> Result<()> {
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    say!("seed {seed}")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let addrs = site.clients();
    let (ends, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    let done = thread::scope(|scope| {
        let append = |number: usize| {
            let (addrs, ends, count) = (&addrs, &ends, &count);
            move || append(number, &mut Client::new(addrs), ends, count)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(append(number))).collect();
        let result: Result<()> = (0..rounds).try_for_each(|round| {
            let unavailable = disturb(site, &mut random, election_timeout, &count)
                .with_context(|| format!("round {round} of seed {seed}"))?;
            longest = longest.max(unavailable);
            Ok(())
        });
        ends.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for client in clients {
            done.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        result.map(|()| done)
    })?;
    check(&addrs, done).with_context(|| format!("seed {seed}"))?;
    say!("after a disturbance clients succeeded again within {longest:.1?}")?;
    say!("{rounds} rounds: ok, in {:.0} s", start.elapsed().as_secs_f64())?;
    Ok(())
}

/// Appends records until `ends` is set.
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

/// Disturbs one replica. Returns the time until the clients succeed again.
fn disturb(site: &mut impl Site, random: &mut fastrand::Rng, timeout: u64, count: &AtomicU64) -> Result<Duration> {
    let addrs = site.clients();
    let victim: ReplicaId = if random.bool() { leader(&addrs)? } else { random.usize(..addrs.len()) };
    let span = Duration::from_millis(random.u64(..3 * timeout));
    thread::sleep(Duration::from_millis(random.u64(..timeout)));
    site.disturb(victim, random, span)?;
    let (start, before) = (Instant::now(), count.load(Ordering::Relaxed));
    while count.load(Ordering::Relaxed) < before + CLIENTS as u64 {
        ensure!(start.elapsed() < PATIENCE, "no record is appended within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(start.elapsed())
}

/// Waits until a replica leads.
fn leader(addrs: &[SocketAddr]) -> Result<ReplicaId> {
    let start = Instant::now();
    loop {
        for id in 0..addrs.len() {
            let mut client = Client::new(&addrs[id..=id]);
            match client.status() {
                Ok(Reply::Status { leader: Some(leader), .. }) if leader == id as u64 => return Ok(id),
                _ => {}
            }
        }
        ensure!(start.elapsed() < PATIENCE, "no replica leads within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Compares the logs of all replicas with each other and with the acknowledgements of the clients.
fn check(addrs: &[SocketAddr], mut done: Vec<Done>) -> Result<()> {
    let last = commit(addrs, leader(addrs)?)?;
    let logs = (0..addrs.len()).map(|id| read_log(addrs, id, last)).collect::<Result<Vec<_>>>()?;
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
    say!("{} records acknowledged, {last} in the log of each replica", done.len())?;
    Ok(())
}

fn commit(addrs: &[SocketAddr], id: ReplicaId) -> Result<Index> {
    let reply = Client::new(&addrs[id..=id]).status()?;
    let Reply::Status { commit, .. } = reply else { bail!("an unexpected reply: {reply:?}") };
    Ok(commit)
}

/// Reads the committed records of a replica, once it has all.
fn read_log(addrs: &[SocketAddr], id: ReplicaId, last: Index) -> Result<Vec<Vec<u8>>> {
    let start = Instant::now();
    // A replica that has just been started does not serve clients yet.
    while commit(addrs, id).unwrap_or(0) < last {
        ensure!(start.elapsed() < PATIENCE, "replica {id} does not catch up");
        thread::sleep(Duration::from_millis(10));
    }
    let mut client = Client::new(&addrs[id..=id]);
    (1..=last).map(|index| client.read(index)?.context("a committed record is missing")).collect()
}
