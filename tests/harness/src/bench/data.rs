//! What a bench does with memory: PDs, connections over which data goes, and what becomes of it.

use std::net::{IpAddr, SocketAddr};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use cmid_proto::memory::Access;
use cmid_proto::{Acks, CmEvent, IdKey, PortSpace, Time};

use super::{Bench, SOON, Who, pdl};
use crate::failure::{ensure, same};
use crate::{Check, Done, Lab, Remote, Status, Subject, TestDevice, TestMr, TestPd, TestQp, Under};

/// The device of a lab's drivers.
pub type DeviceOf<L> = Under<<L as Lab>::Subject>;
/// A PD on it.
pub type PdOf<L> = <DeviceOf<L> as TestDevice>::Pd;
/// Memory that is registered on it.
pub type MrOf<L> = <DeviceOf<L> as TestDevice>::Mr;
/// An end of a connection on it.
pub type EndOf<L> = End<<DeviceOf<L> as TestDevice>::Qp>;

/// One end of a connection over which data goes.
#[derive(Debug)]
pub struct End<Q> {
    /// Whose.
    pub who: Who,
    /// Its id.
    pub id: IdKey,
    /// The QP on it.
    pub qp: Q,
}

impl<L: Lab> Bench<'_, L> {
    /// A PD on the device of a side.
    pub fn pd(&mut self, who: Who) -> Check<PdOf<L>> {
        let ip = match who {
            Who::Client => self.net().client,
            Who::Server => self.net().server,
        };
        pd_at(&mut self.side(who).driver, ip)
    }

    /// A PD on another device.
    pub fn foreign_pd(&mut self) -> Check<PdOf<L>> {
        let (mut driver, ip) = self.lab.other_device()?;
        pd_at(&mut driver, ip)
    }

    /// A connection whose QPs belong to these PDs: the client's, the server's. Somebody listens already.
    pub fn join(&mut self, client_pd: &PdOf<L>, server_pd: &PdOf<L>) -> Check<(EndOf<L>, EndOf<L>)> {
        let id = self.resolved()?;
        let client = self.end(Who::Client, id, client_pd)?;
        self.connect(id, &[])?;
        let id = self.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
        let server = self.end(Who::Server, id, server_pd)?;
        self.accept(id, &[])?;
        self.expect(Who::Client, client.id, CmEvent::Established, 0, pdl::RESPONSE)?;
        self.expect(Who::Server, server.id, CmEvent::Established, 0, pdl::NONE)?;
        Ok((client, server))
    }

    fn end(&mut self, who: Who, id: IdKey, pd: &PdOf<L>) -> Check<EndOf<L>> {
        let qp = self.side(who).drive().attach_qp(id, |device, attaching| device.make_qp(attaching, pd))?;
        Ok(End { who, id, qp })
    }

    /// Ends what [`Bench::join`] made: both QPs are gone, polled or not.
    pub fn part(&mut self, ends: (EndOf<L>, EndOf<L>)) -> Check {
        for end in [ends.1, ends.0] {
            drop(end.qp);
            self.destroy(end.who, end.id)?;
        }
        // Whoever is destroyed last has heard of the other one.
        Ok(())
    }

    /// The next completion at an end.
    pub fn done(&mut self, end: &mut EndOf<L>) -> Check<Done> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(done) = end.qp.poll()? {
                return Ok(done);
            }
            ensure(Instant::now() < deadline, || format!("{:?}: no completion in {SOON:?}", end.who))?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next completion at an end is of this work request and this kind.
    pub fn ends(&mut self, end: &mut EndOf<L>, wr_id: u64, status: Status) -> Check {
        let done = self.done(end)?;
        same("completion", done, Done { wr_id, status })
    }

    /// What comes of an RDMA read of the server's memory, over a connection of its own whose server's QP belongs to `pd`: the
    /// bytes, or how it failed.
    pub fn peer_reads(&mut self, pd: &PdOf<L>, from: Remote, len: usize) -> Check<Result<Vec<u8>, Status>> {
        let (status, memory) = self.peer(pd, vec![0; len], |end, mr| end.qp.post_read(1, mr, 0..len, from))?;
        Ok(if status == Status::Success { Ok(memory) } else { Err(status) })
    }

    /// What comes of an RDMA write to the server's memory, over a connection of its own whose server's QP belongs to `pd`.
    pub fn peer_writes(&mut self, pd: &PdOf<L>, to: Remote, bytes: &[u8]) -> Check<Status> {
        let len = bytes.len();
        let (status, _) = self.peer(pd, bytes.to_vec(), |end, mr| end.qp.post_write(1, mr, 0..len, to))?;
        Ok(status)
    }

    fn peer(
        &mut self,
        pd: &PdOf<L>,
        memory: Vec<u8>,
        post: impl FnOnce(&mut EndOf<L>, &MrOf<L>) -> Result<(), cmid_proto::Errno>,
    ) -> Check<(Status, Vec<u8>)> {
        let own = self.pd(Who::Client)?;
        let mr = own.register(memory, Access::LOCAL_WRITE).map_err(|(_, error)| error)?;
        let (mut client, server) = self.join(&own, pd)?;
        post(&mut client, &mr)?;
        let done = self.done(&mut client)?;
        same("completion", done.wr_id, 1)?;
        self.part((client, server))?;
        let returned = mr.deregister().map_err(|(_, error)| error)?;
        Ok((done.status, returned.buffer))
    }
}

/// A PD on the device that has this address: nothing but an id says which one that is.
fn pd_at<D: TestDevice>(driver: &mut impl Subject<Device: DerefMut<Target = D>>, ip: IpAddr) -> Check<D::Pd> {
    let drive = driver.drive();
    let channel = drive.open_channel(Acks::OnDelivery)?;
    let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
    drive.bind(id, SocketAddr::new(ip, 0))?;
    let pd = drive.device_mut().make_pd(id)?;
    drive.destroy(id, Time::NEVER)?;
    drive.close_channel(channel)?;
    Ok(pd)
}

/// Where a peer finds an MR.
pub fn remote(mr: &impl TestMr) -> Remote {
    Remote { addr: mr.addr(), rkey: mr.rkey() }
}
