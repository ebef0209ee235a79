//! A connection of the echo programs: a QP, its CQ, and slots of eight bytes.

use std::time::Duration;

use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, AckTimeout, Attaching, Caps, Completion, CreateError, QpAttrs, SendWr, WcOpcode};
use cmid_proto::{Drive, Error, IdKey, Time};
use cmid_sim::{Cq, Mr, Node, Qp, SimDevice};

/// The slots of receives are the first ones, those of sends follow.
pub(crate) const RECEIVES: u64 = 8;
pub(crate) const SENDS: u64 = 4;

/// When a lost packet is repeated.
const REPEATS: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Link {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    /// The sends that have not completed, by slot.
    pub(crate) is_busy: [bool; (RECEIVES + SENDS) as usize],
}

/// What a completion tells.
pub(crate) enum Done {
    /// A number has arrived in this slot.
    Received(u64, u64),
    /// The send of this slot is over.
    Sent(u64),
}

/// The connection has failed.
#[derive(Debug)]
pub(crate) struct Failed;

fn range(slot: u64) -> std::ops::Range<usize> {
    slot as usize * 8..slot as usize * 8 + 8
}

impl Link {
    fn new(device: &mut SimDevice, to: Attaching<'_>) -> Result<Link, CreateError> {
        let pd = device.alloc_pd(to.id())?;
        let cq = device.create_cq(to.id(), 64)?;
        let bytes = vec![0; range(RECEIVES + SENDS).start];
        let mr = pd.register(bytes, Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 16, max_recv_wr: 16, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let timeout = Some(AckTimeout::at_least(REPEATS));
        qp.modify(QpAttrs { timeout, ..QpAttrs::default() }).map_err(|_| cmid_proto::Errno::EINVAL)?;
        let mut link = Link { qp, cq, mr, is_busy: Default::default() };
        (0..RECEIVES).try_for_each(|slot| link.receive(slot)).map_err(|Failed| cmid_proto::Errno::EIO)?;
        Ok(link)
    }

    pub(crate) fn attach(drive: &mut Drive<SimDevice>, id: IdKey) -> Result<Link, Error> {
        drive.attach_qp(id, Link::new)
    }

    pub(crate) fn receive(&mut self, slot: u64) -> Result<(), Failed> {
        self.qp.post_recv(slot, self.mr.sge(range(slot))).map_err(|_| Failed)
    }

    /// Sends a number from a slot.
    pub(crate) fn send(&mut self, slot: u64, number: u64) -> Result<(), Failed> {
        self.is_busy[slot as usize] = true;
        self.mr.write(range(slot).start, &number.to_be_bytes()).map_err(|_| Failed)?;
        self.qp.post_send(SendWr::send(slot, self.mr.sge(range(slot)))).map_err(|_| Failed)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Done>, Failed> {
        let completion = self.cq.poll_one().map_err(|_| Failed)?;
        completion.map(|completion| self.take(completion)).transpose()
    }

    /// Waits for the next completion.
    pub(crate) async fn done(&mut self, node: &Node) -> Result<Done, Failed> {
        let completion = node.next_completion(&mut self.cq).await.map_err(|_| Failed)?;
        self.take(completion)
    }

    fn take(&mut self, completion: Completion) -> Result<Done, Failed> {
        if !completion.is_success() {
            return Err(Failed);
        }
        let slot = completion.wr_id;
        if completion.opcode != WcOpcode::RECV {
            self.is_busy[slot as usize] = false;
            return Ok(Done::Sent(slot));
        }
        let mut bytes = [0; 8];
        self.mr.read(range(slot).start, &mut bytes).map_err(|_| Failed)?;
        Ok(Done::Received(slot, u64::from_be_bytes(bytes)))
    }

    /// Ends the connection of an id.
    pub(crate) fn close(self, drive: &mut Drive<SimDevice>, id: IdKey) {
        // They fail if the connection or its device is gone.
        let _ = drive.disconnect(id, Time::NEVER);
        let _ = drive.detach_qp(id, |device, id| device.destroy_qp(id));
        drop(self);
        let _ = drive.destroy(id, Time::NEVER);
    }
}
