//! Both sides on the simulator, in virtual time: cores without drivers, in one thread. Nothing blocks; the clock
//! jumps.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use cmid_proto::{ChannelKey, Drive, Errno, Limits, Next, Poller};
use cmid_sim::{Config, Fabric, SimDevice};
use indicatif::ProgressBar;

use crate::args::{Plan, Role};
use crate::side::{Deadline, Outcome, Side};

/// The number of concurrent connections per host. A host has 28,232 ports; near that number the search for a free one
/// is slow.
const PORTS: u64 = 25_000;
/// The maximum number of clients' hosts: all are in one network, together with the server's.
const MOST_HOSTS: u64 = 100;
/// The number of the server's host: its address is that of the server in real time.
const SERVER: u64 = 1;
/// Events read off the channels in one turn.
const BUDGET: usize = 1024;
/// The number of turns of the clock between two checks of the deadline.
const LOOK_EVERY: u64 = 1024;

/// The open channels: all are read in each turn.
#[derive(Default)]
struct Open(Vec<ChannelKey>);

impl<D> Poller<D> for Open {
    fn add(&mut self, channel: ChannelKey, _: &D) -> Result<(), Errno> {
        self.0.push(channel);
        Ok(())
    }

    fn remove(&mut self, channel: ChannelKey, _: &D) {
        self.0.retain(|&other| other != channel);
    }
}

/// One side and its drive.
struct ClientSlot {
    drive: Drive<SimDevice, Open>,
    side: Side<SimDevice>,
}

impl ClientSlot {
    fn begin(fabric: &Fabric, ip: IpAddr, role: Role, plan: Plan, bar: ProgressBar) -> Result<Self> {
        let mut drive = Drive::with(fabric.host(&[ip]).device(), Open::default(), (), Limits::LARGE);
        drive.set_now(fabric.now());
        let side = Side::begin(&mut drive, role, plan, bar)?;
        Ok(ClientSlot { drive, side })
    }

    /// Does all work that is possible at this time.
    fn turn(&mut self, fabric: &Fabric) {
        self.drive.set_now(fabric.now());
        for index in 0..self.drive.poller().0.len() {
            let channel = self.drive.poller().0[index];
            self.drive.readable(channel);
        }
        loop {
            let rest = self.drive.run(BUDGET);
            let any = self.side.advance(&mut self.drive);
            // A side that is over takes no events.
            if !any && rest != Next::Again {
                return;
            }
        }
    }
}

/// Returns the clients' results, and the server's.
pub(crate) fn run(
    port: u16,
    plan: Plan,
    serves: u64,
    hosts: Option<u64>,
    bar: &ProgressBar,
) -> Result<(Vec<Outcome>, Outcome)> {
    let at_once = plan.in_flight.unwrap_or(plan.connections);
    let backlog = u32::try_from(at_once).context("so many at once")?.max(Config::default().max_backlog);
    let fabric = Fabric::new(Config { max_backlog: backlog, ..Config::default() });
    let deadline = Deadline::of(&plan);

    let server_ip = host(SERVER);
    let address = SocketAddr::new(server_ip, port);
    let server_plan = Plan { connections: serves, ..plan };
    let mut server =
        Some(ClientSlot::begin(&fabric, server_ip, Role::Server(address), server_plan, ProgressBar::hidden())?);
    let mut served = None;
    let mut clients = (0..)
        .zip(shares(plan, hosts)?)
        .map(|(index, plan)| {
            let ip = host(if index < SERVER { index } else { index + 1 });
            ClientSlot::begin(&fabric, ip, Role::Client(address), plan, bar.clone())
        })
        .collect::<Result<Vec<_>>>()?;

    let mut turns = 0_u64;
    while clients.iter().any(|seat| !seat.side.is_over()) || server.as_ref().is_some_and(|seat| !seat.side.is_over()) {
        for seat in server.iter_mut().chain(&mut clients) {
            seat.turn(&fabric);
        }
        // A server that has served its number of connections ends, also if there are more clients.
        if server.as_ref().is_some_and(|seat| seat.side.is_over()) {
            served = server.take().map(conclude);
        }
        turns += 1;
        if turns.is_multiple_of(LOOK_EVERY) && deadline.is_past() {
            break;
        }
        let alarms = server.iter().chain(&clients).filter_map(|seat| seat.drive.next_timeout());
        // Idle and not over: the remaining connections are reported as unfinished.
        let Some(next) = alarms.chain(fabric.next_due()).min() else { break };
        fabric.advance_to(next);
    }
    let served = served.or_else(|| server.map(conclude)).context("no server")?;
    Ok((clients.into_iter().map(conclude).collect(), served))
}

/// The plan of each host's client. Each host has at least one connection in progress, so there are not more hosts
/// than concurrent connections.
fn shares(plan: Plan, hosts: Option<u64>) -> Result<Vec<Plan>> {
    let at_once = plan.in_flight.unwrap_or(plan.connections);
    let hosts = hosts.map_or(at_once.div_ceil(PORTS), |hosts| hosts.min(at_once));
    ensure!(hosts <= MOST_HOSTS, "{at_once} connections at once need {hosts} hosts; there are {MOST_HOSTS} at most");
    let share = |of: u64, index| of / hosts + u64::from(index < of % hosts);
    let plan_of = |index| Plan {
        connections: share(plan.connections, index),
        in_flight: plan.in_flight.map(|most| share(most, index)),
        ..plan
    };
    Ok((0..hosts).map(plan_of).collect())
}

fn conclude(mut seat: ClientSlot) -> Outcome {
    seat.side.conclude(&mut seat.drive)
}

/// All hosts are in one network.
fn host(index: u64) -> IpAddr {
    // There are 101 at most.
    Ipv4Addr::new(10, 0, 0, 1 + index as u8).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn plan(connections: u64, in_flight: Option<u64>) -> Plan {
        let [timeout, patience, deadline] = [Duration::from_secs(1); 3];
        Plan {
            connections,
            in_flight,
            bind: None,
            retries: 0,
            timeout,
            patience,
            deadline,
            base_qpn: None,
            in_step: false,
        }
    }

    fn spread(connections: u64, in_flight: Option<u64>, hosts: Option<u64>) -> Vec<(u64, Option<u64>)> {
        let shares = shares(plan(connections, in_flight), hosts).unwrap();
        shares.iter().map(|plan| (plan.connections, plan.in_flight)).collect()
    }

    #[test]
    fn hosts_share_what_was_asked_for() {
        assert_eq!(spread(10, Some(3), Some(10)), [(4, Some(1)), (3, Some(1)), (3, Some(1))]);
        assert_eq!(spread(3, None, Some(10)), [(1, None); 3]);
        assert_eq!(spread(50_001, None, None), [(16_667, None); 3]);
        assert_eq!(spread(1_000_000, Some(100), None), [(1_000_000, Some(100))]);
    }

    #[test]
    fn there_are_no_more_hosts_than_addresses() {
        assert_eq!(shares(plan(2_500_000, None), None).unwrap().len(), 100);
        let error = shares(plan(2_500_001, None), None).unwrap_err();
        assert!(error.to_string().contains("need 101 hosts"), "{error}");
    }
}
