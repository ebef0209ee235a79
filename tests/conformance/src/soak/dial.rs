//! A client that makes many connections, several at a time, and numbers them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use cmid_harness::{Driver, Env};
use cmid_proto::{Acks, ChannelKey, CmEvent, ConnParam, Event, IdKey, PortSpace};

/// The number of connections in progress at a time.
const WINDOW: usize = 8;
/// The kernel retransmits an unread request after 4.6 s. Several such gaps are no hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the connections, each with its number as private data. Each must be accepted and closed in order.
pub(crate) fn run<L: Env>(env: &L, address: SocketAddr, connections: u32) -> Result<()> {
    let mut driver = env.driver().map_err(|failure| anyhow::anyhow!("{failure}"))?;
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    let source = SocketAddr::new(env.net().client, 0);
    // A range that the QP numbers of the server do not reach.
    let mut dialler =
        Dialler { channel, source, address, next: 0, qp_num: 0x10_0000, connections, open: BTreeMap::new(), done: 0 };
    let began = Instant::now();
    let mut last = (Instant::now(), 0);
    while dialler.done < connections {
        dialler.fill(&mut driver)?;
        driver.wait(Some(Duration::from_millis(50)))?;
        while let Some(event) = driver.drive().next_event(channel) {
            dialler.handle(&mut driver, &event)?;
        }
        if last.1 != dialler.done {
            last = (Instant::now(), dialler.done);
        }
        ensure!(last.0.elapsed() < PATIENCE, "no connection has ended for {PATIENCE:?}, {} have", dialler.done);
    }
    println!("{connections} connections made and ended in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

struct Dialler {
    channel: ChannelKey,
    source: SocketAddr,
    address: SocketAddr,
    next: u32,
    qp_num: u32,
    connections: u32,
    /// The numbers of the connections in progress.
    open: BTreeMap<IdKey, u32>,
    done: u32,
}

impl Dialler {
    fn fill(&mut self, driver: &mut impl Driver) -> Result<()> {
        while self.next < self.connections && self.open.len() < WINDOW {
            let drive = driver.drive();
            let id = drive.create_id(Some(self.channel), PortSpace::Tcp)?;
            drive.resolve_addr(id, Some(self.source), self.address, drive.within(PATIENCE))?;
            self.open.insert(id, self.next);
            self.next += 1;
        }
        Ok(())
    }

    fn handle(&mut self, driver: &mut impl Driver, event: &Event) -> Result<()> {
        let (id, drive) = (event.id, driver.drive());
        let Some(&number) = self.open.get(&id) else { bail!("{} of {id}, which is gone", event.kind) };
        ensure!(event.status == 0, "connection {number}: {} with status {}", event.kind, event.status);
        let deadline = drive.within(PATIENCE);
        match event.cm() {
            Some(CmEvent::AddrResolved) => drive.resolve_route(id, deadline)?,
            Some(CmEvent::RouteResolved) => {
                self.qp_num += 1;
                let param = ConnParam { qp_num: self.qp_num, ..ConnParam::default() };
                drive.connect(id, param, &number.to_be_bytes(), deadline)?;
            }
            Some(CmEvent::ConnectResponse) => {
                let observed: Option<&[u8]> = event.private_data.get(..4);
                ensure!(observed == Some(&number.to_be_bytes()[..]), "connection {number} got the answer of another");
                drive.establish(id)?;
                drive.disconnect(id, deadline)?;
            }
            Some(CmEvent::Disconnected) => {
                drive.destroy(id, deadline)?;
                self.open.remove(&id);
                self.done += 1;
            }
            Some(_) | None => bail!("connection {number}: {}", event.kind),
        }
        Ok(())
    }
}
