//! Queue pairs: posting of work requests.

use std::ops::Range;
use std::time::Duration;

use cmid_proto::memory::Access;
use cmid_proto::{Errno, Service};

use crate::data::ah::To;
use crate::data::completion::{WcStatus, opcode};
use crate::data::memory::Memory;
use crate::data::mr::Mr;
use crate::data::packet::{Datagram, Operation, Packet, Transfer};
use crate::data::queues::{Caps, Pending, QpState, Receive, Sent};
use crate::data::space::KeyedRange;
use crate::fabric::Fabric;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::{PdNo, QpNo};
use crate::kernel::due::Due;

impl Default for Caps {
    /// 16 work requests per queue, one range of memory each, nothing inline.
    fn default() -> Self {
        Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
    }
}

/// The address and key of memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The address: that of the region, plus an offset into it.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}

/// A queue pair. It belongs to its id: [`SimDevice::destroy_qp`](crate::SimDevice::destroy_qp) destroys it. Dropping
/// this handle destroys it only if the id is gone.
#[derive(Debug)]
pub struct Qp {
    pub(crate) fabric: Fabric,
    pub(crate) no: QpNo,
}

impl Qp {
    /// Its number.
    #[must_use]
    pub fn num(&self) -> u32 {
        self.no.num
    }

    /// Its state (ibv_query_qp(3)).
    ///
    /// # Errors
    /// `EINVAL` if it is destroyed.
    pub fn state(&self) -> Result<QpState, Errno> {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.state).ok_or(Errno::EINVAL))
    }

    /// Sends a range of a region; consumes a receive of the peer. As with all work requests, the region is pinned
    /// until the completion is polled, or until the QP is destroyed and its completions are gone; see [`Mr`].
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end, for an unusable region or one of another domain, before the QP is ready to
    /// send, after it is destroyed, and on a datagram QP; `ENOMEM` if the send queue is full. Work requests occupy it
    /// until their completions are polled.
    pub fn post_send(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::empty())?;
        let work = Work { wr_id, opcode: opcode::SEND, memory: Local::From(keyed_range) };
        self.fabric.with(|world| world.post_operation(self.no, work, Operation::Send))
    }

    /// Sends a range of a region as a datagram. It is lost without an error if no QP has the number, if no receive is
    /// posted or it is too short, or if the queue key differs. The QP number 0xFFFFFF sends to every QP that is
    /// attached to a group, including the sender's own QP if attached (`rxe_rcv_mcast_pkt`).
    ///
    /// # Errors
    /// As [`Qp::post_send`], but `EINVAL` on a connected QP; `EINVAL` also for more bytes than the port's active MTU
    /// ([`Config::mtu`](crate::Config::mtu)), and for an address handle of another domain.
    pub fn post_send_to(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>, to: To<'_>) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::empty())?;
        self.fabric.with(|world| {
            let pair = world.queues.pairs.get(&self.no).ok_or(Errno::EINVAL)?;
            let foreign = (to.ah.pd.device.host, to.ah.pd.no) != (self.no.host, pair.pd);
            let source = world.address_at(self.no.host, to.ah.route.sgid_index).ok_or(Errno::EINVAL)?;
            if foreign || keyed_range.len > world.config.mtu as usize {
                return Err(Errno::EINVAL);
            }
            let (from, route, to_qp, qkey) = (self.no, to.ah.route, to.qp_num, to.qkey);
            let work = Work { wr_id, opcode: opcode::SEND, memory: Local::From(keyed_range) };
            world.post(self.no, Service::Datagram, work, |_, _, bytes| {
                Transfer::Datagram(Datagram { from, source, route, to_qp, qkey, bytes })
            })
        })
    }

    /// Posts a range of a region to receive a message of the peer, or a datagram and the [`GRH_LEN`](crate::GRH_LEN)
    /// bytes before it.
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end, for an unusable region, one of another domain or one without
    /// [`Access::LOCAL_WRITE`], and after the QP is destroyed; `ENOMEM` if the receive queue is full, as for
    /// [`Qp::post_send`].
    pub fn post_recv(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::LOCAL_WRITE)?;
        self.fabric.with(|world| world.post_receive(self.no, Receive { wr_id, keyed_range }))
    }

    /// Reads memory of the peer into a range of a region.
    ///
    /// # Errors
    /// As [`Qp::post_send`]; `EINVAL` also for a region without [`Access::LOCAL_WRITE`].
    pub fn post_read(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>, remote: Remote) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::LOCAL_WRITE)?;
        let there = KeyedRange { addr: remote.addr, key: remote.rkey, len: keyed_range.len };
        let work = Work { wr_id, opcode: opcode::RDMA_READ, memory: Local::Into(keyed_range) };
        self.fabric.with(|world| world.post_operation(self.no, work, |_| Operation::Read(there)))
    }

    /// Writes a range of a region into memory of the peer. The peer gets no completion.
    ///
    /// # Errors
    /// As [`Qp::post_send`].
    pub fn post_write(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>, remote: Remote) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::empty())?;
        let there = KeyedRange { addr: remote.addr, key: remote.rkey, len: keyed_range.len };
        let work = Work { wr_id, opcode: opcode::RDMA_WRITE, memory: Local::From(keyed_range) };
        self.fabric.with(|world| world.post_operation(self.no, work, |bytes| Operation::Write(there, bytes)))
    }

    /// A part of a region for a work request of this QP. `EINVAL` unless the region belongs to the QP's domain and
    /// has these rights.
    pub(crate) fn keyed_range(&self, mr: &Mr, range: Range<usize>, needs: Access) -> Result<KeyedRange, Errno> {
        let pd = self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.pd)).ok_or(Errno::EINVAL)?;
        if !mr.allows(&self.fabric, pd, needs) {
            return Err(Errno::EINVAL);
        }
        mr.keyed_range(range)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.fabric.with(|world| {
            let Some(pair) = world.queues.pairs.get_mut(&self.no) else {
                // It was removed with its device; this removes its completions.
                return world.destroy_qp(self.no);
            };
            pair.held = false;
            if !pair.attached {
                world.destroy_qp(self.no);
            }
        });
    }
}

/// A work request of a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) wr_id: u64,
    pub(crate) opcode: u32,
    pub(crate) memory: Local,
}

/// The local memory of a work request of a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    /// The source; its bytes are copied when the work request is posted.
    From(KeyedRange),
    /// The target of a read.
    Into(KeyedRange),
    /// The range of a bind.
    Bound(KeyedRange),
    /// No memory.
    Nothing,
}

/// The result of a posted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Done,
    /// The completion will have an error status.
    Failed,
}

impl Local {
    /// The key that it pins; `None` if the device does not access memory.
    fn pins(self, caps: &Caps) -> Option<u32> {
        match self {
            Local::From(keyed_range) if caps.inlines(keyed_range) => None,
            Local::From(keyed_range) | Local::Into(keyed_range) => keyed_range.pins(),
            Local::Bound(keyed_range) => Some(keyed_range.key),
            Local::Nothing => None,
        }
    }
}

impl Caps {
    /// Whether a send of this range is copied when it is posted.
    fn inlines(&self, keyed_range: KeyedRange) -> bool {
        keyed_range.len <= self.max_inline as usize
    }
}

impl World {
    fn post_operation(
        &mut self,
        qp: QpNo,
        work: Work,
        operation: impl FnOnce(Vec<u8>) -> Operation,
    ) -> Result<(), Errno> {
        self.post(qp, Service::Connected, work, |to, sequence, bytes| {
            Transfer::Packet(Packet { from: qp, to, sequence, operation: operation(bytes) })
        })
    }

    /// Queues a work request and sends it to the peer of a connected QP. A datagram is sent and complete at once.
    fn post(
        &mut self,
        qp: QpNo,
        service: Service,
        work: Work,
        transfer: impl FnOnce(Option<QpNo>, u64, Vec<u8>) -> Transfer,
    ) -> Result<(), Errno> {
        let Some(mut pending) = self.accept_work(qp, service, work)? else { return Ok(()) };
        // The device executes it at once and copies the bytes now.
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return Ok(()) };
        let bytes = match work.memory {
            // The program copies inline bytes itself, without a key check.
            Local::From(keyed_range) if pair.caps.inlines(keyed_range) => {
                self.memory.space.bytes(keyed_range.stretch())
            }
            Local::From(keyed_range) => self.memory.for_local_read(pair.pd, keyed_range),
            Local::Into(_) | Local::Bound(_) | Local::Nothing => Some(&[][..]),
        };
        let bytes = bytes.map(<[u8]>::to_vec);
        let Some(bytes) = bytes else {
            self.fail_work(qp, &pending, WcStatus::LOC_PROT_ERR);
            return Ok(());
        };
        pending.sequence = pair.next_sequence();
        let (sequence, peer) = (pending.sequence, pair.peer);
        pair.sends.push_back(pending);
        if service == Service::Datagram {
            self.complete_locally(qp, sequence, LOCAL_WORK);
        }
        let due = self.now.after(self.config.latency);
        self.timers.arm(due, Due::Data(transfer(peer, sequence, bytes)));
        Ok(())
    }

    /// Queues a command to the device itself. The device executes it at once. The completion has the same delay as a
    /// request to the peer, so that completions keep their order. If `obey` returns `None`, the work request fails
    /// with `failure`.
    pub(crate) fn post_command(
        &mut self,
        qp: QpNo,
        work: Work,
        failure: WcStatus,
        obey: impl FnOnce(&mut Memory, PdNo) -> Option<()>,
    ) -> Result<Posted, Errno> {
        let Some(mut pending) = self.accept_work(qp, Service::Connected, work)? else { return Ok(Posted::Failed) };
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return Ok(Posted::Failed) };
        if obey(&mut self.memory, pair.pd).is_none() {
            self.fail_work(qp, &pending, failure);
            return Ok(Posted::Failed);
        }
        pending.sequence = pair.next_sequence();
        let sequence = pending.sequence;
        pair.sends.push_back(pending);
        self.sweep = true;
        self.complete_locally(qp, sequence, self.config.latency.saturating_mul(2));
        Ok(Posted::Done)
    }

    /// Queues a work request and pins its region, if the QP accepts it. `None` if it was flushed at once.
    fn accept_work(&mut self, qp: QpNo, service: Service, work: Work) -> Result<Option<Pending>, Errno> {
        let Work { wr_id, opcode, memory } = work;
        let pair = self.queues.pairs.get_mut(&qp).filter(|pair| pair.service == service).ok_or(Errno::EINVAL)?;
        let pins = memory.pins(&pair.caps);
        let target = if let Local::Into(keyed_range) = memory { Some(keyed_range) } else { None };
        let pending = Pending { sequence: 0, wr_id, opcode, pins, target };
        match pair.state {
            QpState::Init | QpState::Rtr => Err(Errno::EINVAL),
            QpState::Rts | QpState::Err if pair.unpolled.sends >= pair.caps.max_send_wr => Err(Errno::ENOMEM),
            QpState::Err => {
                pair.unpolled.sends += 1;
                pair.pin(pins);
                self.finish_send(qp, &pending, Sent::failed(WcStatus::WR_FLUSH_ERR));
                Ok(None)
            }
            QpState::Rts => {
                pair.unpolled.sends += 1;
                pair.pin(pins);
                Ok(Some(pending))
            }
        }
    }

    /// Fails a work request before it is sent.
    fn fail_work(&mut self, qp: QpNo, pending: &Pending, status: WcStatus) {
        self.finish_send(qp, pending, Sent::failed(status));
        self.qp_to_error(qp);
    }

    /// Completes a work request after this time, without an answer of the peer.
    fn complete_locally(&mut self, qp: QpNo, sequence: u64, after: Duration) {
        let done = Transfer::Answer { to: qp, sequence, result: Ok(Vec::new()) };
        self.timers.arm(self.now.after(after), Due::Data(done));
    }

    fn post_receive(&mut self, qp: QpNo, receive: Receive) -> Result<(), Errno> {
        let pair = self.queues.pairs.get_mut(&qp).ok_or(Errno::EINVAL)?;
        if pair.unpolled.receives >= pair.caps.max_recv_wr {
            return Err(Errno::ENOMEM);
        }
        pair.unpolled.receives += 1;
        pair.pin(receive.keyed_range.pins());
        if pair.state == QpState::Err {
            self.flush_receive(qp, &receive);
            return Ok(());
        }
        pair.receives.push_back(receive);
        self.run_inbound(qp);
        Ok(())
    }
}
