//! What is done to the VM's host by ip(8) and rdma(8). Everything here changes the machine that it runs on.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::net;
use crate::failure::ensure;
use crate::{Check, Failure};

/// The device with the addresses that scenarios use, and the interface below it.
const DEVICE: &str = "rxe0";
const INTERFACE: &str = "dummy0";
/// How long the emulated machine may take for one of these.
const LIMIT: Duration = Duration::from_secs(30);

/// The number of link addresses that the silent host has had. All labs of a process share the host.
static MOVES: AtomicU8 = AtomicU8::new(0);

/// The active one of the two links of the bond, once there is a bond.
static ACTIVE: Mutex<Option<usize>> = Mutex::new(None);

pub(super) fn silent_host() -> Check {
    // The address that it has already is no news to anybody.
    MOVES.fetch_max(1, Ordering::Relaxed);
    tell_link_address(MOVES.load(Ordering::Relaxed))
}

pub(super) fn move_neighbour() -> Check {
    tell_link_address(MOVES.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
}

fn tell_link_address(number: u8) -> Check {
    let (ip, link) = (net().silent.to_string(), format!("02:00:00:00:88:{number:02x}"));
    run("ip", &["neigh", "replace", &ip, "lladdr", &link, "dev", INTERFACE, "nud", "permanent"])
}

/// Begins to. rdma(8) ends only when every program has closed the device; rxe cannot take it from them.
pub(super) fn remove_device() -> Check {
    Command::new("rdma").args(["link", "delete", DEVICE]).spawn()?;
    Ok(())
}

/// Fails for as long as a program holds the old one.
pub(super) fn add_device() -> Check {
    until("the device", || run("rdma", &["link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE]))
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

/// rdma-core's rping, which sends as soon as it is connected.
pub(super) fn client_process(there: SocketAddr) -> Check<Child> {
    let (ip, port) = (there.ip().to_string(), there.port().to_string());
    Ok(Command::new("rping").args(["-c", "-a", &ip, "-p", &port, "-C", "1"]).spawn()?)
}

/// The bond. The kernel's module makes a bond0 when it is loaded, unless a file in /etc/modprobe.d forbids it.
const BOND: &str = "bond9";
/// The links of the bond.
const LINKS: [&str; 2] = ["dummy8", "dummy9"];

/// A bond whose link address is that of the active link, so that it changes with it, and an RDMA device on it.
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
    run("rdma", &["link", "add", "rxe9", "type", "rxe", "netdev", BOND])
}

fn run(program: &str, arguments: &[&str]) -> Check {
    let output = Command::new(program).args(arguments).output()?;
    let said = || format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    ensure(output.status.success(), said)
}

fn until(what: &str, attempt: impl Fn() -> Check) -> Check {
    let end = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(Failure(reason)) => ensure(Instant::now() < end, || format!("{what}: {reason}"))?,
        }
        thread::sleep(Duration::from_millis(200));
    }
}
