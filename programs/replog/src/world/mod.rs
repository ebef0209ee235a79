//! Worlds of the simulator with replicas and clients, under faults. A replica is the program without its loop: the
//! machine on the connections over RDMA, with a journal on the simulated disk in place of the database. Clients reach
//! it by messages that do not travel through the fabric, because they use TCP.
//!
//! A world panics if an acknowledged record is lost or duplicated, if a deposed leader writes into the memory of a
//! replica, if two replicas commit different records, if a term has two leaders, or if the order of acknowledgements is
//! not that of the log. Once the faults end, all clients must succeed.

mod bytes;
mod client;
mod journal;
mod judge;
mod links;
mod mail;
mod replica;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use cmid_mio::sim::{Fault, Latency, Rule, World};

pub use bytes::{explain_bytes, run_bytes};
pub use judge::Done;

use client::Client;
use judge::Judge;
use mail::Mail;
use replica::Service;

/// The faults of a world: all except a lack of memory.
static FAULTS: LazyLock<Vec<Fault>> =
    LazyLock::new(|| Fault::ALL.into_iter().filter(|it| *it != Fault::OutOfMemory).collect());

/// The parameters of a world.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of replicas.
    pub replicas: usize,
    /// The number of clients.
    pub clients: usize,
    /// The number of records that each client appends, one after the other.
    pub records: u64,
    /// The time when the faults end.
    pub faults: Duration,
    /// Whether replicas fence. Without fencing a deposed leader writes, and the world panics.
    pub fences: bool,
}

/// The number of faults of a world.
const MOST_FAULTS: usize = 10;

/// The time limit after the end of the faults.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the programs of a world share.
#[derive(Debug)]
struct Shared {
    size: Size,
    judge: RefCell<Judge>,
    /// What replicas and clients receive over TCP.
    requests: Vec<Mail<client::Request>>,
    replies: Vec<Mail<client::Reply>>,
}

/// Runs a world under faults of its seed. Returns the acknowledged records of the clients, by index.
///
/// # Panics
/// If the protocol has violated one of the conditions of this module.
pub fn run(world: &mut World, size: Size) -> Vec<Done> {
    run_under(world, size, |world| world.chaos(MOST_FAULTS, size.faults, &FAULTS))
}

/// As [`run`], with the faults that `plan` plans.
fn run_under(world: &mut World, size: Size, plan: impl FnOnce(&mut World)) -> Vec<Done> {
    let shared = Rc::new(Shared {
        size,
        judge: RefCell::new(Judge::new(size)),
        requests: (0..size.replicas).map(|_| Mail::default()).collect(),
        replies: (0..size.clients).map(|_| Mail::default()).collect(),
    });
    for id in 0..size.replicas {
        let shared = Rc::clone(&shared);
        world.host(&replica::name(id), move |node| Service::new(node, id, &shared));
    }
    // Only replicas have faults.
    plan(world);
    for number in 0..size.clients {
        let shared = Rc::clone(&shared);
        world.client(&format!("client {number}"), move |node| Client::new(node, number, &shared));
    }
    // In much time much can happen between two messages.
    let _slow = world.rule(Rule::delay(Latency::Uniform(Duration::from_millis(1), Duration::from_millis(4))));
    world.run_for(size.faults);
    world.run_until("all records are at all replicas", PATIENCE, |_| shared.judge.borrow().is_done());
    shared.judge.borrow().check_end()
}
