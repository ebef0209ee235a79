//! One pool of blocks for two connections and two threads: a feed that sends each block to two subscribers.
//!
//! The feed fills a block once. Each thread has a clone of its `Arc` in a work request of its connection. No slot is
//! numbered: a block returns to its pool when the last clone is dropped.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::{iter, net::SocketAddr, sync::Arc, sync::mpsc, thread, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cmid_blocking::{Connection, Incoming, Listener, Options, Ready};
use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, Attaching, Block, Caps, CreateError, Parts, Pool, SendWr};
use cmid_sim::{Clock, Config, Fabric};

const LIMIT: Duration = Duration::from_secs(10);
const LEN: usize = 4096;
/// The blocks that wait for a thread; there are also one that it sends, and the next one.
const WAITING: usize = 4;
const BLOCKS: usize = WAITING + 2;

type Memory<D> = (<D as DataPath>::Pd, Pool<<D as DataPath>::Piece>);
type Queues<D> = (<D as DataPath>::Qp, <D as DataPath>::Cq);

/// Creates the QP of a connection, on the PD and pool of an earlier one if there is one.
fn attach<D: DataPath>(
    device: &mut D,
    to: Attaching<'_>,
    memory: Option<Memory<D>>,
) -> Result<(Memory<D>, Queues<D>), CreateError> {
    let new = |pd: D::Pd| Ok::<_, CreateError>((pd.clone(), pd.pool(vec![0; BLOCKS * LEN], LEN, Access::empty())?));
    let memory = memory.map_or_else(|| new(device.alloc_pd(to.id())?), Ok)?;
    let cq = device.create_cq(to.id(), BLOCKS as u32 + 1)?;
    let caps = Caps { max_send_wr: 1, max_recv_wr: BLOCKS as u32, ..Caps::default() };
    let qp = device.create_qp(to, &memory.0, &cq, &cq, caps)?;
    Ok((memory, (qp, cq)))
}

/// Waits for the next completion of a connection. Returns its blocks.
fn completion<D: DataPath>(connection: &mut Connection<D>, (qp, cq): &mut Queues<D>) -> Result<Parts<D::Piece>> {
    loop {
        // Arm first: a completion that comes after the poll then notifies.
        cq.take_notifications()?;
        cq.arm()?;
        if let Some(done) = cq.poll_one()? {
            ensure!(done.is_success(), "a work request has ended with {}", done.status);
            return qp.reclaim(&done).context("a request without a block");
        }
        if let Ready::Event(event) = connection.wait_for(Some(cq.fd()), LIMIT)? {
            bail!("the connection has ended: {event}");
        }
    }
}

/// Sends numbers to two subscribers. Returns how many blocks are free at the end.
fn feed<D: DataPath>(mut listener: Listener<D>, count: u32) -> Result<usize> {
    let accept = |it: Incoming<D>, memory| it.accept(&Options::default(), |device, to| attach(device, to, memory));
    let (one, (memory, queues_of_one)) = accept(listener.accept(LIMIT)?, None)?;
    let (other, ((_pd, pool), queues_of_other)) = accept(listener.accept(LIMIT)?, Some(memory))?;
    thread::scope(|scope| {
        let to_threads = [(one, queues_of_one), (other, queues_of_other)].map(|(mut connection, mut queues)| {
            let (hand, blocks) = mpsc::sync_channel::<Arc<Block<D::Piece>>>(WAITING);
            let send = move || -> Result<()> {
                for block in blocks {
                    queues.0.post_send_blocks(SendWr::send(0, block))?;
                    drop(completion(&mut connection, &mut queues)?);
                }
                Ok(connection.wait_closed(LIMIT)?)
            };
            (hand, scope.spawn(send))
        });
        for number in 0..count {
            let mut block = pool.take().context("a free block")?;
            block[..4].copy_from_slice(&number.to_be_bytes());
            let block = Arc::new(block);
            for (hand, _) in &to_threads {
                hand.send(Arc::clone(&block)).map_err(|_| anyhow!("a thread has ended"))?;
            }
        }
        let threads = to_threads.map(|(_, thread)| thread);
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    Ok(pool.available())
}

/// Receives the numbers.
fn subscribe<D: DataPath>(device: D, address: SocketAddr, count: u32) -> Result<()> {
    let (mut connection, mut queues) = Connection::connect(device, address, &Options::default(), |device, to| {
        let ((_pd, pool), (mut qp, cq)) = attach(device, to, None)?;
        iter::from_fn(|| pool.take()).try_for_each(|block| qp.post_recv_blocks(0, block))?;
        Ok::<_, CreateError>((qp, cq))
    })?;
    for number in 0..count {
        let blocks = completion(&mut connection, &mut queues)?;
        ensure!(blocks[0].starts_with(&number.to_be_bytes()), "number {number} is missing");
        queues.0.post_recv_blocks(0, blocks)?;
    }
    Ok(connection.disconnect(LIMIT)?)
}

fn main() -> Result<()> {
    let (client, address): (_, SocketAddr) = ("10.0.0.1".parse()?, "10.0.0.2:7477".parse()?);
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let (clients, server) = (fabric.host(&[client]), fabric.host(&[address.ip()]));
    let listener = Listener::bind(server.device(), address)?;
    let free = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| subscribe(clients.device(), address, 1000).expect("all numbers"));
        }
        feed(listener, 1000)
    })?;
    ensure!(free == BLOCKS, "{free} of {BLOCKS} blocks are free");
    println!("1000 numbers have arrived at two subscribers; all {BLOCKS} blocks are free again");
    Ok(())
}

#[test]
fn each_block_arrives_at_both_subscribers_and_returns_to_the_pool() {
    main().expect("all numbers and all blocks");
}
