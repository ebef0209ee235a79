//! Disturbances of the VM's host with ip(8) and rdma(8). They change the machine that they run on.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cmid_proto::Transport;

use super::network::net;
use crate::failure::ensure;
use crate::shell::run;
use crate::{Check, Failure};

/// The interface below the device with the addresses that scenarios use.
const INTERFACE: &str = "dummy0";
/// Time limit of one command on the emulated machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The number of link addresses that the silent host has had. All environments of a process share the host.
static MOVES: AtomicU8 = AtomicU8::new(0);

/// The number of the active link of the bond; `None` before the bond exists.
static ACTIVE: Mutex<Option<usize>> = Mutex::new(None);

/// Returns the type of the VM's devices for rdma(8): rxe or siw.
fn device_type() -> String {
    std::env::var("CMID_TRANSPORT").unwrap_or_else(|_| "rxe".into())
}

/// The transport of the VM's devices.
pub(super) fn transport() -> Transport {
    if device_type() == "siw" { Transport::Iwarp } else { Transport::InfiniBand }
}

/// The device with the addresses that scenarios use.
fn device() -> String {
    format!("{}0", device_type())
}

pub(super) fn silent_host() -> Check {
    // Setting the current address again is not reported as a change.
    MOVES.fetch_max(1, Ordering::Relaxed);
    announce_link_address(MOVES.load(Ordering::Relaxed))
}

pub(super) fn move_neighbour() -> Check {
    announce_link_address(MOVES.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
}

fn announce_link_address(number: u8) -> Check {
    let (ip, link) = (net().silent.to_string(), format!("02:00:00:00:88:{number:02x}"));
    run("ip", &["neigh", "replace", &ip, "lladdr", &link, "dev", INTERFACE, "nud", "permanent"]).map(drop)
}

/// Starts the removal. rdma(8) ends only when every program has closed the device, because rxe cannot revoke an open
/// device.
pub(super) fn remove_device() -> Check {
    Command::new("rdma").args(["link", "delete", &device()]).spawn()?;
    Ok(())
}

/// Adds the device again. Retries, because the command fails while a program has the old device open.
pub(super) fn add_device() -> Check {
    until("the device", || run("rdma", &["link", "add", &device(), "type", &device_type(), "netdev", INTERFACE]))
        .map(drop)
}

pub(super) fn fail_over() -> Check {
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let next = match *active {
        Some(active) => 1 - active,
        None => {
            bond()?;
            0
        }
    };
    run("ip", &["link", "set", BOND, "type", "bond", "active_slave", LINKS[next]])?;
    *active = Some(next);
    Ok(())
}

/// Starts rdma-core's rping, which sends as soon as it is connected.
pub(super) fn client_process(there: SocketAddr) -> Check<Child> {
    let (ip, port) = (there.ip().to_string(), there.port().to_string());
    Ok(Command::new("rping").args(["-c", "-a", &ip, "-p", &port, "-C", "1"]).spawn()?)
}

/// The name of the bond. Not bond0, which the kernel's module may create when it is loaded, depending on
/// /etc/modprobe.d.
const BOND: &str = "bond9";
/// The links of the bond.
const LINKS: [&str; 2] = ["dummy8", "dummy9"];

/// Creates a bond and an RDMA device on it. The bond has the link address of its active link, so a failover changes the
/// address of the bond.
fn bond() -> Check {
    run(
        "ip",
        &["link", "add", BOND, "type", "bond", "mode", "active-backup", "fail_over_mac", "active", "miimon", "100"],
    )?;
    for link in LINKS {
        run("ip", &["link", "add", link, "type", "dummy"])?;
        run("ip", &["link", "set", link, "master", BOND])?;
        run("ip", &["link", "set", link, "up"])?;
    }
    run("ip", &["link", "set", BOND, "arp", "on", "up"])?;
    for ip in net().bonded {
        run("ip", &["addr", "add", &format!("{ip}/24"), "dev", BOND])?;
    }
    run("rdma", &["link", "add", &format!("{}9", device_type()), "type", &device_type(), "netdev", BOND]).map(drop)
}

fn until<T>(what: &str, attempt: impl Fn() -> Check<T>) -> Check<T> {
    let end = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(Failure(reason)) => ensure(Instant::now() < end, || format!("{what}: {reason}"))?,
        }
        thread::sleep(Duration::from_millis(200));
    }
}
