//! The process has no descriptor left (RLIMIT_NOFILE).

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};

use cmid_harness::{Check, Failure, Side, make_qp, test_caps};
use cmid_proto::{Acks, Errno, PortSpace, Time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::faults;
use crate::Expected::{Always, Backend};
use crate::Phase;
use crate::fixture::STANDS;

/// The addresses of a device that this process has not opened yet: rxe0 of the VM.
const UNOPENED: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2))];

faults! { "The limit on descriptors is reached (RLIMIT_NOFILE)";
    no_descriptor_for_a_driver [All Fast 60] "a device is opened and a driver is made, with 0, 1, 2, ... descriptors left" => [
        Always(&["with too few: EMFILE; with enough: ok", STANDS]),
    ] |s| {
        let env = s.b.env;
        let mut few = 0;
        loop {
            let made = with_free(few, || env.driver())?;
            match made {
                Ok(_) if few > 0 => break,
                Ok(_) => return Err(Failure("made of nothing".into())),
                Err(failure) if is_limit(&failure) => few += 1,
                Err(failure) => return Err(failure),
            }
            if few > 20 {
                return Err(Failure("twenty are not enough".into()));
            }
        }
        s.note("with too few: EMFILE; with enough: ok");
        s.anew()
    }
    no_descriptor_for_a_channel [All Fast 60] "a channel is opened" => [
        Always(&["open_channel with none left: EMFILE", "open_channel with one left: ok", STANDS]),
    ] |s| {
        let drive = s.b.client.drive();
        let none = with_free(0, || drive.open_channel(Acks::OnDelivery))?;
        let one = with_free(1, || drive.open_channel(Acks::OnDelivery))?;
        s.tries("open_channel with none left", none);
        let channel = s.tries("open_channel with one left", one);
        if let Some(channel) = channel {
            s.b.client.drive().close_channel(channel)?;
        }
        s.anew()
    }
    no_descriptor_for_an_id [All Fast 60] "ids are created, on a channel and in synchronous mode" => [
        Always(&[
            "create_id on a channel: ok", "create_id in synchronous mode: EMFILE",
            "with descriptors again: create_id in synchronous mode: ok", STANDS,
        ]),
    ] |s| {
        let channel = s.b.client.channel;
        let drive = s.b.client.drive();
        let on_a_channel = with_free(0, || drive.create_id(Some(channel), PortSpace::Tcp))?;
        let alone = with_free(0, || drive.create_id(None, PortSpace::Tcp))?;
        s.tries("create_id on a channel", on_a_channel);
        s.tries("create_id in synchronous mode", alone);
        let again = s.b.client.drive().create_id(None, PortSpace::Tcp);
        s.tries("with descriptors again: create_id in synchronous mode", again);
        s.anew()
    }
    no_descriptor_for_a_listener [All Fast 60] "an id is to listen" => [
        Always(&["listen: EMFILE", "the id is bound", "with descriptors again: listen: ok", STANDS]),
    ] |s| {
        let (address, channel) = (s.b.address, s.b.server.channel);
        let drive = s.b.server.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(id, address)?;
        let result = with_free(0, || drive.listen(id, 10))?;
        s.tries("listen", result);
        let state = s.b.server.drive().core().state(id);
        s.note(format!("the id is {}", state.map_or("gone".to_owned(), |state| state.to_string())));
        let result = s.b.server.drive().listen(id, 10);
        s.tries("with descriptors again: listen", result);
        s.anew()
    }
    no_descriptor_for_a_migration [All Fast 60] "a connected id is to go into synchronous mode" => [
        Always(&[
            "migrate into synchronous mode: EMFILE", "migrate to a channel: ok", "client: disconnect: ok",
            "client: DEADLINE_PASSED(disconnect)", "server: DISCONNECTED",
        ]),
    ] |s| {
        let ids = s.reach(Phase::Connected)?;
        let drive = s.b.client.drive();
        let result = with_free(0, || drive.migrate(ids.client, None, Time::NEVER).map(drop))?;
        s.tries("migrate into synchronous mode", result);
        let other = s.b.client.drive().open_channel(Acks::OnDelivery)?;
        let drive = s.b.client.drive();
        let result = with_free(0, || drive.migrate(ids.client, Some(other), Time::NEVER).map(drop))?;
        s.tries("migrate to a channel", result);
        let channel = s.b.client.channel;
        s.b.client.drive().migrate(ids.client, Some(channel), Time::NEVER)?;
        s.b.client.drive().close_channel(other)?;
        s.go_on(Phase::Connected, ids)
    }
    no_descriptor_for_a_connection [All Fast 60] "a connection is made, from resolve_addr to disconnect" => [
        Always(&["connection: stands; it needs none", "server: DISCONNECTED", STANDS]),
    ] |s| {
        s.b.listen()?;
        let hold = Held::all_but(0)?;
        let (client, server) = s.b.connected()?;
        s.note("connection: stands; it needs none");
        s.b.client.drive().disconnect(client, Time::NEVER)?;
        s.sees(Side::Server, server, 0..=9)?;
        drop(hold);
        s.anew()
    }
    no_descriptor_for_a_queue_pair [Epoll Fast 60] "a CQ and a QP are made" => [
        Always(&["create_cq and create_qp: EMFILE", "with descriptors again: create_cq and create_qp: ok"]),
    ] |s| {
        let id = s.b.listen().and_then(|_| s.b.resolved())?;
        let pd = s.b.pd(Side::Client)?;
        let drive = s.b.client.drive();
        let made = with_free(0, || drive.attach_qp(id, |device, attaching| make_qp(device, attaching, &pd, test_caps())))?;
        let made = s.tries("create_cq and create_qp", made).is_some();
        if !made {
            let made = s.b.client.drive().attach_qp(id, |device, attaching| make_qp(device, attaching, &pd, test_caps()));
            s.tries("with descriptors again: create_cq and create_qp", made);
        }
        Ok(())
    }
    no_descriptor_for_a_device [Epoll Fast 60] "an id is bound to a device that the process has not opened yet" => [
        // librdmacm opens the device here. The kernel backend opens it for a PD.
        Backend { librdmacm: "bind: EMFILE", kernel: "bind: ok" },
        Backend { librdmacm: "the id is idle", kernel: "the id is bound" },
        Backend {
            librdmacm: "with descriptors again: bind: EINVAL",
            kernel: "with descriptors again: bind: refused, EINVAL",
        },
        Always(&["another id: bind: ok", STANDS]),
    ] |s| {
        let channel = s.b.client.channel;
        let drive = s.b.client.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let result = with_free(0, || drive.bind(id, (UNOPENED[0], 0).into()))?;
        s.tries("bind", result);
        let state = s.b.client.drive().core().state(id);
        s.note(format!("the id is {}", state.map_or("gone".to_owned(), |state| state.to_string())));
        let result = s.b.client.drive().bind(id, (UNOPENED[0], 0).into());
        s.tries("with descriptors again: bind", result);
        s.b.destroy(Side::Client, id)?;
        let id = s.b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let result = s.b.client.drive().bind(id, (UNOPENED[0], 0).into());
        s.tries("another id: bind", result);
        s.recount()?;
        s.anew()
    }
    no_descriptor_for_a_resolved_device [Epoll Fast 60] "an address resolves to a device that the process has not opened yet" => [
        Always(&["resolve_addr: ok"]),
        Backend { librdmacm: "client: ADDR_ERROR (-EPERM)", kernel: "client: ADDR_RESOLVED" },
        Always(&["with descriptors again", "another id: resolve_addr: ok", "client: ADDR_RESOLVED", STANDS]),
    ] |s| {
        let channel = s.b.client.channel;
        let drive = s.b.client.drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let hold = Held::all_but(0)?;
        let deadline = s.patience(Side::Client);
        let result = s.b.client.drive().resolve_addr(id, None, (UNOPENED[1], 7).into(), deadline);
        s.tries("resolve_addr", result);
        s.aftermath()?;
        while let Some(fault) = s.b.client.drive().next_fault() {
            s.note(format!("fault: {fault}"));
        }
        drop(hold);
        s.note("with descriptors again");
        s.aftermath()?;
        s.b.destroy(Side::Client, id)?;
        let id = s.b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
        let deadline = s.patience(Side::Client);
        let result = s.b.client.drive().resolve_addr(id, None, (UNOPENED[1], 7).into(), deadline);
        s.tries("another id: resolve_addr", result);
        s.aftermath()?;
        s.recount()?;
        s.anew()
    }
}

/// Holds descriptors open and lowers the limit, so that few are left.
struct Held {
    files: Vec<File>,
    before: Rlimit,
}

impl Held {
    /// Leaves this many descriptors free.
    fn all_but(free: usize) -> Check<Self> {
        let before = getrlimit(Resource::Nofile);
        let mut highest = 0;
        for entry in std::fs::read_dir("/proc/self/fd")? {
            let number = entry?.file_name().to_string_lossy().parse::<u64>().unwrap_or(0);
            highest = highest.max(number);
        }
        let mut held = Held { files: Vec::new(), before };
        // Room for the existing gaps, which are filled, and for the descriptors that stay free.
        let limit = Rlimit { current: Some(highest + 2 + free as u64), ..before };
        setrlimit(Resource::Nofile, limit).map_err(|error| Failure(format!("setrlimit: {error}")))?;
        while let Ok(file) = File::open("/dev/null") {
            held.files.push(file);
        }
        if held.files.len() < free {
            return Err(Failure("there are not so many".into()));
        }
        held.files.truncate(held.files.len() - free);
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Restores the earlier limit, so it cannot be refused.
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

fn with_free<T>(free: usize, then: impl FnOnce() -> T) -> Check<T> {
    let _held = Held::all_but(free)?;
    Ok(then())
}

fn is_limit(failure: &Failure) -> bool {
    failure.0.contains(&Errno::EMFILE.to_string()) || failure.0.contains("os error 24")
}
