//! A link: two joined interfaces, an address and a soft-RoCE device on each, and the faults that can be injected.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use cmid_harness::shell::{ip, run};
use cmid_harness::{Check, Failure, Net, Side};
use serde_json::Value;

/// The routing table that sends packets for an end of a link onto the link, although the address is a local one.
const TABLE: &str = "103";
/// How long to wait for a requested change. The emulated machine is slow.
const LIMIT: Duration = Duration::from_secs(20);

/// The devices that this process has begun to remove: a bit for each end of its link.
static GOING: AtomicU8 = AtomicU8::new(0);

/// A link, by its number: 1 to 250.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    number: u8,
}

impl Link {
    /// Both ends.
    pub const ENDS: [Side; 2] = [Side::Client, Side::Server];

    /// The link of this number, whether it exists or not.
    #[must_use]
    pub const fn of(number: u8) -> Self {
        Link { number }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Sets up what all links need once: a rule that looks up their routes before the local table.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn prepare() -> Check {
        ip(&format!("rule add pref 20 to 10.90.0.0/16 lookup {TABLE}\n"))
    }

    /// The network interface at an end.
    #[must_use]
    pub fn interface(self, end: Side) -> String {
        format!("wire{}{}", self.number, letter(end))
    }

    /// The RDMA device at an end.
    #[must_use]
    pub fn device(self, end: Side) -> String {
        format!("rxe_{}{}", self.number, letter(end))
    }

    /// The address at an end.
    #[must_use]
    pub fn ip(self, end: Side) -> IpAddr {
        Ipv4Addr::new(10, 90, self.number, last(end)).into()
    }

    /// The addresses that scenarios use.
    #[must_use]
    pub fn net(self) -> Net {
        let other = |last| Ipv4Addr::new(10, 90, self.number, last).into();
        Net {
            client: self.ip(Side::Client),
            server: self.ip(Side::Server),
            no_rdma: Ipv4Addr::new(172, 16, 0, 1).into(),
            nobody: other(77),
            no_route: Ipv4Addr::new(8, 8, 8, 8).into(),
            silent: other(88),
            bonded: [other(98), other(99)],
        }
    }

    /// Creates the link.
    ///
    /// # Errors
    /// The error of ip(8) or rdma(8).
    pub fn lay(self) -> Check {
        let [a, b] = Link::ENDS.map(|end| (self.interface(end), self.link_address(end)));
        ip(&format!("link add {} address {} type veth peer name {} address {}\n", a.0, a.1, b.0, b.1))?;
        for end in Link::ENDS {
            // The source addresses of packets are local here and must be accepted. Each end answers ARP only for its
            // own address.
            for (setting, value) in
                [("accept_local", "1"), ("rp_filter", "0"), ("arp_ignore", "1"), ("arp_announce", "2")]
            {
                fs::write(format!("/proc/sys/net/ipv4/conf/{}/{setting}", self.interface(end)), value)?;
            }
            let interface = self.interface(end);
            ip(&format!(
                "rule add pref 10 iif {interface} lookup local\naddr add {}/24 dev {interface}\nlink set {interface} up\n",
                self.ip(end)
            ))?;
        }
        for end in Link::ENDS {
            self.lead_to(end)?;
            self.add_device(end)?;
        }
        Ok(())
    }

    /// Removes the link and all that is on it.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn remove(self) -> Check {
        for end in Link::ENDS {
            ip(&format!("rule del pref 10 iif {} lookup local\n", self.interface(end)))?;
        }
        ip(&format!("link del {}\n", self.interface(Side::Client)))
    }

    /// Sets the interface at an end down.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn down(self, end: Side) -> Check {
        ip(&format!("link set {} down\n", self.interface(end)))
    }

    /// Sets the interface at an end up again, and restores the routes and neighbours that were lost.
    ///
    /// # Errors
    /// The error of ip(8); the device at either end is not active in time.
    pub fn up(self, end: Side) -> Check {
        ip(&format!("link set {} up\n", self.interface(end)))?;
        for end in Link::ENDS {
            self.lead_to(end)?;
        }
        self.wait_until_active()
    }

    /// Removes the address at an end.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn lose_address(self, end: Side) -> Check {
        ip(&format!("addr del {}/24 dev {}\n", self.ip(end), self.interface(end)))
    }

    /// Adds the address at an end again.
    ///
    /// # Errors
    /// The error of ip(8).
    pub fn regain_address(self, end: Side) -> Check {
        ip(&format!("addr add {}/24 dev {}\n", self.ip(end), self.interface(end)))?;
        for end in Link::ENDS {
            self.lead_to(end)?;
        }
        Ok(())
    }

    /// Applies a tc-netem(8) discipline to what both ends send, for example `loss 100%` or `delay 300ms`.
    ///
    /// # Errors
    /// The error of tc(8).
    pub fn disturb(self, how: &str) -> Check {
        for end in Link::ENDS {
            let interface = self.interface(end);
            let mut arguments = vec!["qdisc", "replace", "dev", &interface, "root", "netem"];
            arguments.extend(how.split_whitespace());
            run("tc", &arguments)?;
        }
        Ok(())
    }

    /// Returns how many packets netem has dropped at both ends.
    ///
    /// # Errors
    /// The error of tc(8).
    pub fn dropped(self) -> Check<u64> {
        let mut sum = 0;
        for end in Link::ENDS {
            let text = run("tc", &["-s", "-j", "qdisc", "show", "dev", &self.interface(end)])?;
            let found: Value = serde_json::from_str(&text).map_err(|error| Failure(error.to_string()))?;
            let of = |qdisc: &Value| qdisc.get("drops").and_then(Value::as_u64);
            sum += found.as_array().into_iter().flatten().filter_map(of).sum::<u64>();
        }
        Ok(sum)
    }

    /// Reverts [`disturb`](Link::disturb).
    ///
    /// # Errors
    /// The error of tc(8).
    pub fn calm(self) -> Check {
        for end in Link::ENDS {
            run("tc", &["qdisc", "del", "dev", &self.interface(end), "root"])?;
        }
        Ok(())
    }

    /// Adds an RDMA device on the interface at an end.
    ///
    /// # Errors
    /// The error of rdma(8). While a program holds the old device open: the device exists.
    pub fn add_device(self, end: Side) -> Check {
        let (device, interface) = (self.device(end), self.interface(end));
        run("rdma", &["link", "add", &device, "type", "rxe", "netdev", &interface])?;
        until("the RDMA device", || Ok(Path::new("/sys/class/infiniband").join(&device).exists()))
    }

    /// Begins to remove the RDMA device at an end. The removal ends only when every program has closed the device,
    /// because rxe cannot revoke it.
    ///
    /// # Errors
    /// rdma(8) cannot be started.
    pub fn remove_device(self, end: Side) -> Check {
        let mut child = std::process::Command::new("rdma").args(["link", "delete", &self.device(end)]).spawn()?;
        GOING.fetch_or(bit(end), Ordering::Relaxed);
        // Does not wait here: the process ends when the removal does.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// Waits for the devices that are being removed, and adds them again. `let_go` makes this process close them.
    ///
    /// # Errors
    /// The devices are not removed, or cannot be added.
    pub fn add_devices_again(self, let_go: impl Fn() -> Check) -> Check {
        for end in Link::ENDS {
            if GOING.fetch_and(!bit(end), Ordering::Relaxed) & bit(end) == 0 {
                continue;
            }
            let old = Path::new("/sys/class/infiniband").join(self.device(end));
            until("end of the removal", || {
                let_go()?;
                Ok(!old.exists())
            })?;
            self.add_device(end)?;
            // Otherwise librdmacm may take it for the old one: rdma_resolve_addr then ends with ADDR_ERROR and status
            // -1.
            let_go()?;
        }
        Ok(())
    }

    /// Whether the device at an end can send messages of the connection manager: its GSI QP is not in the error
    /// state. On Linux 6.1 the device may be unable to receive although this is true; see `devices`.
    ///
    /// # Errors
    /// The error of rdma(8).
    pub fn can_send(self, end: Side) -> Check<bool> {
        let text = run("rdma", &["-j", "resource", "show", "qp", "link", &self.device(end)])?;
        let qps: Value = serde_json::from_str(&text).map_err(|error| Failure(error.to_string()))?;
        let is = |qp: &Value, field: &str, value: &str| qp.get(field).and_then(Value::as_str) == Some(value);
        Ok(!qps.as_array().into_iter().flatten().any(|qp| is(qp, "type", "GSI") && is(qp, "state", "ERR")))
    }

    fn wait_until_active(self) -> Check {
        for end in Link::ENDS {
            let state = format!("/sys/class/infiniband/{}/ports/1/state", self.device(end));
            until("an active port", || Ok(fs::read_to_string(&state)?.contains("ACTIVE")))?;
        }
        Ok(())
    }

    /// Routes packets for this end through the other end, with a permanent neighbour entry. Over veth, an answer to
    /// ARP arrives before ib_core has queued the request that waits for it, and rdma_resolve_addr would end only at
    /// its time-out.
    fn lead_to(self, end: Side) -> Check {
        let other = other(end);
        let (there, from, through) = (self.ip(end), self.ip(other), self.interface(other));
        let link_address = self.link_address(end);
        ip(&format!(
            "neigh replace {there} lladdr {link_address} dev {through} nud permanent\n\
             route replace {there} dev {through} src {from} table {TABLE}\n"
        ))
    }

    fn link_address(self, end: Side) -> String {
        format!("02:00:00:90:{:02x}:{:02x}", self.number, last(end))
    }
}

/// The other end.
pub(crate) fn other(end: Side) -> Side {
    match end {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

/// Waits until `so` returns true.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> Check<bool>) -> Check {
    let end = Instant::now() + LIMIT;
    while !so()? {
        if Instant::now() > end {
            return Err(Failure(format!("no {what} in {LIMIT:?}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn letter(end: Side) -> char {
    match end {
        Side::Client => 'a',
        Side::Server => 'b',
    }
}

fn bit(end: Side) -> u8 {
    1 << last(end)
}

fn last(end: Side) -> u8 {
    match end {
        Side::Client => 1,
        Side::Server => 2,
    }
}
