//! A QP with messages: its memory, its receives, its completions.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_proto::datapath::{Access, Attaching, Caps, CreateError, SendWr, WcOpcode, prelude::*};
use cmid_proto::messages::{HEADER, Messages, MessagesConfig, Received};
use cmid_proto::{ConnParam, Time};

pub(crate) const CONFIG: MessagesConfig = MessagesConfig {
    window: RECVS as u16,
    packet: PACKET as u32,
    keep_alive: Duration::from_millis(500),
    silence: Duration::from_secs(3),
};

/// A `retry_count` of 7 has no limit on soft-RoCE. No send meets a missing receive, so there is nothing to retry.
pub(crate) fn param() -> ConnParam {
    ConnParam { retry_count: 6, rnr_retry_count: 0, ..ConnParam::default() }
}

/// Slots to receive into, then slots to send from.
const RECVS: usize = 16;
const SENDS: usize = 16;
const PACKET: usize = 256;

pub(crate) struct Link<D: DataPath> {
    // Dropped in this order: the QP first, the PD last.
    qp: D::Qp,
    pub(crate) cq: D::Cq,
    mr: D::Mr,
    _pd: D::Pd,
    free: Vec<usize>,
    pub(crate) messages: Option<Messages>,
}

impl<D: DataPath> Link<D> {
    /// Creates the QP and posts the receives: before the connect or the accept.
    pub(crate) fn attach(device: &mut D, to: Attaching<'_>) -> Result<Self, CreateError> {
        let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), (RECVS + SENDS) as u32)?);
        let memory = vec![0; (RECVS + SENDS) * PACKET];
        let mr = pd.register(memory, Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: SENDS as u32, max_recv_wr: RECVS as u32, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        for slot in 0..RECVS {
            qp.post_recv(slot as u64, mr.sge(slot * PACKET..(slot + 1) * PACKET))?;
        }
        Ok(Link { qp, cq, mr, _pd: pd, free: (RECVS..RECVS + SENDS).collect(), messages: None })
    }

    /// Sends a message. Returns false if the peer has no receive, or this side no slot: try again after a turn.
    pub(crate) fn send(&mut self, message: &[u8], now: Time) -> Result<bool> {
        let messages = self.messages.as_mut().context("not connected")?;
        // One slot is for packets without messages.
        if messages.credits() == 0 || self.free.len() < 2 {
            return Ok(false);
        }
        let header = messages.send(message.len(), now)?;
        self.post(header, message)?;
        Ok(true)
    }

    fn post(&mut self, header: [u8; HEADER], message: &[u8]) -> Result<()> {
        let slot = self.free.pop().context("no slot to send from")?;
        let (at, len) = (slot * PACKET, HEADER + message.len());
        self.mr.write(at, &header)?;
        self.mr.write(at + HEADER, message)?;
        Ok(self.qp.post_send(SendWr::send(slot as u64, self.mr.sge(at..at + len)))?)
    }

    /// Takes what has arrived, and sends what is due without a message. Returns the messages.
    pub(crate) fn turn(&mut self, now: Time) -> Result<Vec<Vec<u8>>> {
        let messages = self.messages.as_mut().context("not connected")?;
        let mut arrived = Vec::new();
        // Arm first: completions that come after the last poll then notify.
        self.cq.take_notifications()?;
        self.cq.arm()?;
        while let Some(completion) = self.cq.poll_one()? {
            ensure!(completion.is_success(), "a work request has ended with {}", completion.status);
            let slot = completion.wr_id as usize;
            if completion.opcode != WcOpcode::RECV {
                self.free.push(slot);
                continue;
            }
            let mut packet = vec![0; completion.byte_len as usize];
            self.mr.read(slot * PACKET, &mut packet)?;
            self.qp.post_recv(slot as u64, self.mr.sge(slot * PACKET..(slot + 1) * PACKET))?;
            match messages.receive(&packet, now)? {
                Received::Message(message) => {
                    arrived.push(message.to_vec());
                    messages.posted(1);
                }
                // The client closes when all is answered.
                Received::Goodbye => messages.close(now.after(CONFIG.silence)),
                Received::Control => {}
                Received::Taken | Received::Offer { .. } => bail!("no message is longer than a packet"),
            }
        }
        messages.handle_timeout(now)?;
        while !self.free.is_empty() {
            let Some(header) = self.messages.as_mut().and_then(|messages| messages.poll_control(now)) else { break };
            self.post(header, &[])?;
        }
        Ok(arrived)
    }

    /// Both sides have said goodbye, and all sends have completed.
    pub(crate) fn is_over(&self) -> bool {
        self.messages.as_ref().is_some_and(Messages::is_over) && self.free.len() == SENDS
    }
}
