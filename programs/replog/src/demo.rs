//! The demo: three replicas on the simulated fabric, and a client that appends while a leader is killed and started
//! again.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use replog::client::Client;
use replog::cluster::Cluster;
use replog::protocol::ReplicaId;
use replog::replica::Change;

/// The election timeout: a replica starts an election after one to two timeouts without a message of a leader.
const ELECTION: Duration = Duration::from_millis(300);

/// The limit of each step.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time for which the client appends in each part.
const PART: Duration = Duration::from_secs(2);

struct Demo {
    start: Instant,
    changes: Receiver<(ReplicaId, Change)>,
    leader: Option<ReplicaId>,
    client: Client,
    indexes: Vec<u64>,
}

impl Demo {
    fn say(&self, text: &str) -> Result<()> {
        say!("{:6.2} s  {text}", self.start.elapsed().as_secs_f64())
    }

    /// Prints the changes of the replicas.
    fn report(&mut self) -> Result<()> {
        while let Ok((id, change)) = self.changes.try_recv() {
            match change {
                Change::Leads(term) => {
                    self.leader = Some(id);
                    self.say(&format!("replica {id} leads term {term}"))?;
                }
                Change::Follows(leader, term) => self.say(&format!("replica {id} follows {leader} in term {term}"))?,
            }
        }
        Ok(())
    }

    /// Appends records one after the other for a while.
    fn append(&mut self, span: Duration) -> Result<()> {
        let (start, before) = (Instant::now(), self.indexes.len());
        let mut slowest = Duration::ZERO;
        while start.elapsed() < span {
            let sent = Instant::now();
            let data = format!("record {}", self.indexes.len());
            self.indexes.push(self.client.append(data.as_bytes(), PATIENCE)?);
            slowest = slowest.max(sent.elapsed());
            self.report()?;
        }
        let count = self.indexes.len() - before;
        self.say(&format!("client has appended {count} records; the slowest took {} ms", slowest.as_millis()))
    }

    /// Waits until a replica has all records, and compares them.
    fn check(&mut self, id: ReplicaId) -> Result<()> {
        self.client.turn_to(id);
        let start = Instant::now();
        for (number, &index) in self.indexes.iter().enumerate() {
            let data = loop {
                if let Some(data) = self.client.read(index)? {
                    break data;
                }
                ensure!(start.elapsed() < PATIENCE, "replica {id} does not have record {index}");
            };
            ensure!(data == format!("record {number}").as_bytes(), "record {index} differs at replica {id}");
        }
        self.say(&format!("replica {id} serves all {} acknowledged records", self.indexes.len()))
    }
}

pub(crate) fn run() -> Result<()> {
    say!("replog: three replicas on the simulated fabric")?;
    let (mut cluster, changes) = Cluster::start(3, ELECTION)?;
    let client = Client::new(&cluster.clients);
    let mut demo = Demo { start: Instant::now(), changes, leader: None, client, indexes: Vec::new() };
    demo.append(PART)?;
    let first = demo.leader.context("no replica leads")?;
    cluster.kill(first)?;
    demo.say(&format!("replica {first} is killed"))?;
    demo.append(PART)?;
    cluster.start_replica(first)?;
    demo.say(&format!("replica {first} is started again"))?;
    demo.append(PART)?;
    (0..3).try_for_each(|id| demo.check(id))?;
    ensure!(demo.indexes.is_sorted_by(|a, b| a < b), "records are out of order");
    cluster.end()
}
