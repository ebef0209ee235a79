//! Replicas on the simulated fabric, with their stores, loops and clients.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use replog::client::Client;
use replog::cluster::Cluster;
use replog::protocol::ReplicaId;
use replog::replica::Change;

/// The limit of each step. Test machines may be slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn next_leader(changes: &Receiver<(ReplicaId, Change)>) -> ReplicaId {
    loop {
        if let (id, Change::Leads(_)) = changes.recv_timeout(PATIENCE).expect("a leader") {
            return id;
        }
    }
}

/// Waits until a replica serves a record.
fn read(cluster: &Cluster, id: ReplicaId, index: u64) -> Vec<u8> {
    let (mut client, start) = (Client::new(&cluster.clients[id..=id]), Instant::now());
    loop {
        if let Ok(Some(data)) = client.read(index) {
            return data;
        }
        client.turn_to(0);
        assert!(start.elapsed() < PATIENCE, "replica {id} does not serve {index}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn records_survive_a_leader_and_a_device() {
    let (mut cluster, changes) = Cluster::start(3, Duration::from_millis(300)).expect("start");
    let mut client = Client::new(&cluster.clients);
    let mut indexes = Vec::new();
    let mut append = |count: usize| {
        for _ in 0..count {
            let data = format!("record {}", indexes.len());
            indexes.push(client.append(data.as_bytes(), PATIENCE).expect("append"));
        }
        indexes.clone()
    };
    let leader = next_leader(&changes);
    append(20);
    // Another replica leads, and the old leader stores the records that it has missed.
    cluster.kill(leader).expect("kill");
    append(20);
    cluster.start_replica(leader).expect("start");
    let caught_up = *append(1).last().expect("records");
    read(&cluster, leader, caught_up);
    // A replica without a device catches up once the device is back.
    cluster.host(leader).remove_device();
    append(5);
    cluster.host(leader).add_device();
    let indexes = append(1);
    assert!(indexes.is_sorted_by(|a, b| a < b), "{indexes:?}");
    for id in 0..3 {
        for (number, &index) in indexes.iter().enumerate() {
            assert_eq!(read(&cluster, id, index), format!("record {number}").into_bytes());
        }
    }
    cluster.end().expect("no replica fails");
}

/// Replica 0 connects to the others. A peer that loses its power sends no message, so only the retries of the QP end
/// the old connection.
#[test]
fn records_survive_losses_of_power() {
    let (mut cluster, _changes) = Cluster::start(3, Duration::from_millis(300)).expect("start");
    let mut client = Client::new(&cluster.clients);
    for victim in [2, 1] {
        client.append(b"before", PATIENCE).expect("append");
        cluster.host(victim).set_link(false);
        cluster.kill(victim).expect("kill");
        client.append(b"during", PATIENCE).expect("append");
        cluster.start_replica(victim).expect("start");
        cluster.host(victim).set_link(true);
        let index = client.append(b"after", PATIENCE).expect("append");
        for id in 0..3 {
            assert_eq!(read(&cluster, id, index), b"after");
        }
    }
    cluster.end().expect("no replica fails");
}
