//! Messages over a connection that is made again: `Messages` frames them and counts credits, `Redial` connects.
//!
//! Both sides are threads on the simulator; client and server run on each device that implements `DataPath`. The server
//! ends in the middle, as by a kill, and starts again. The client connects again and repeats what was not answered.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod client;
mod link;
mod server;

use std::net::SocketAddr;
use std::thread;

use anyhow::{Result, anyhow};
use cmid_sim::{Clock, Config, Fabric};

fn main() -> Result<()> {
    let (answered, connections) = run(1000)?;
    println!("{answered} messages are answered, over {connections} connections");
    Ok(())
}

fn run(count: u64) -> Result<(u64, u32)> {
    let address: SocketAddr = "10.0.0.2:7476".parse()?;
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    let hosts = [fabric.host(&["10.0.0.1".parse()?]), fabric.host(&[address.ip()])];
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            server::serve(hosts[1].device(), address, Some(count / 2))?;
            server::serve(hosts[1].device(), address, None)
        });
        let result = client::send(hosts[0].device(), address, count)?;
        server.join().map_err(|_| anyhow!("the server panicked"))??;
        Ok(result)
    })
}

#[test]
fn each_message_is_answered_although_the_server_ends_and_starts_again() {
    assert_eq!(run(300).expect("all is answered"), (300, 2));
}
