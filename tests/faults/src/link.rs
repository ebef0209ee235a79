//! A wire: two interfaces that are joined, an address and a soft-RoCE device on each, and what can go wrong with them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use cmid_conformance::{Check, Failure, Net, Side};
use serde_json::Value;

use crate::shell::{ip, run};

/// The routing table that leads packets for the end of a wire onto it, though the address is the machine's own.
const TABLE: &str = "103";
/// How long the emulated machine may take for something to be as it was asked to be.
const LIMIT: Duration = Duration::from_secs(20);

/// The devices that this process has begun to take away: a bit for each end of its wire.
static GOING: AtomicU8 = AtomicU8::new(0);

/// A wire of this number: 1 to 250.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    number: u8,
}

impl Link {
    /// Both ends.
    pub const ENDS: [Side; 2] = [Side::Client, Side::Server];

    /// The wire of this number, whether it is there or not.
    #[must_use]
    pub const fn of(number: u8) -> Self {
        Link { number }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// What all wires need once: their routes are asked for before the machine's own addresses are.
    ///
    /// # Errors
    /// What ip(8) says.
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

    /// Lays the wire.
    ///
    /// # Errors
    /// What ip(8) and rdma(8) say.
    pub fn lay(self) -> Check {
        let [a, b] = Link::ENDS.map(|end| (self.interface(end), self.link_address(end)));
        ip(&format!("link add {} address {} type veth peer name {} address {}\n", a.0, a.1, b.0, b.1))?;
        for end in Link::ENDS {
            // A packet from one of the machine's own addresses is no forgery here, and each end answers only for itself.
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

    /// Takes the wire away, with all that is on it.
    ///
    /// # Errors
    /// What ip(8) says.
    pub fn remove(self) -> Check {
        for end in Link::ENDS {
            ip(&format!("rule del pref 10 iif {} lookup local\n", self.interface(end)))?;
        }
        ip(&format!("link del {}\n", self.interface(Side::Client)))
    }

    /// The interface at an end goes down.
    ///
    /// # Errors
    /// What ip(8) says.
    pub fn down(self, end: Side) -> Check {
        ip(&format!("link set {} down\n", self.interface(end)))
    }

    /// The interface at an end comes up again, with the routes and neighbours that went with it.
    ///
    /// # Errors
    /// What ip(8) says; the device at either end is not ready in time.
    pub fn up(self, end: Side) -> Check {
        ip(&format!("link set {} up\n", self.interface(end)))?;
        for end in Link::ENDS {
            self.lead_to(end)?;
        }
        self.wait_until_active()
    }

    /// The address at an end is taken away.
    ///
    /// # Errors
    /// What ip(8) says.
    pub fn lose_address(self, end: Side) -> Check {
        ip(&format!("addr del {}/24 dev {}\n", self.ip(end), self.interface(end)))
    }

    /// The address at an end is there again.
    ///
    /// # Errors
    /// What ip(8) says.
    pub fn regain_address(self, end: Side) -> Check {
        ip(&format!("addr add {}/24 dev {}\n", self.ip(end), self.interface(end)))?;
        for end in Link::ENDS {
            self.lead_to(end)?;
        }
        Ok(())
    }

    /// Both ends treat what they send as tc-netem(8) says: `loss 100%`, `delay 300ms`.
    ///
    /// # Errors
    /// What tc(8) says.
    pub fn disturb(self, how: &str) -> Check {
        for end in Link::ENDS {
            let interface = self.interface(end);
            let mut arguments = vec!["qdisc", "replace", "dev", &interface, "root", "netem"];
            arguments.extend(how.split_whitespace());
            run("tc", &arguments)?;
        }
        Ok(())
    }

    /// How many packets netem has dropped at both ends.
    ///
    /// # Errors
    /// What tc(8) says.
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

    /// The wire is as it was before [`disturb`](Wire::disturb).
    ///
    /// # Errors
    /// What tc(8) says.
    pub fn calm(self) -> Check {
        for end in Link::ENDS {
            run("tc", &["qdisc", "del", "dev", &self.interface(end), "root"])?;
        }
        Ok(())
    }

    /// Puts an RDMA device on the interface at an end.
    ///
    /// # Errors
    /// What rdma(8) says; for as long as a program holds the old one, that there is one.
    pub fn add_device(self, end: Side) -> Check {
        let (device, interface) = (self.device(end), self.interface(end));
        run("rdma", &["link", "add", &device, "type", "rxe", "netdev", &interface])?;
        until("the RDMA device", || Ok(Path::new("/sys/class/infiniband").join(&device).exists()))
    }

    /// Begins to take the RDMA device at an end away. It ends only when every program has let go of it, because rxe cannot
    /// take it from them.
    ///
    /// # Errors
    /// rdma(8) cannot be started.
    pub fn remove_device(self, end: Side) -> Check {
        let mut child = std::process::Command::new("rdma").args(["link", "delete", &self.device(end)]).spawn()?;
        GOING.fetch_or(bit(end), Ordering::Relaxed);
        // It is not waited for here; it ends when it can.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// Adds the devices again that have begun to go, once they have gone. `let_go` makes this process let go of them.
    ///
    /// # Errors
    /// They do not go, or do not come.
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
            // Or librdmacm may take it for the old one: rdma_resolve_addr then ends with ADDR_ERROR and status -1.
            let_go()?;
        }
        Ok(())
    }

    /// Whether the device at an end can send messages of the connection manager: whether its QP for them (GSI) is not in the
    /// error state. On Linux 6.1 it may not receive any although it is not; see `devices`.
    ///
    /// # Errors
    /// What rdma(8) says.
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

    /// What is sent to this end leaves by the other one, whose neighbour is known for ever: over veth an answer to ARP comes
    /// before ib_core has queued the request that waits for it, and rdma_resolve_addr would end only at its time-out.
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

/// Waits for something to be so.
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
