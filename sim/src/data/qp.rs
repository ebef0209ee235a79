//! Queue pairs: what is posted to them.

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
    /// 16 of each, one range of memory, nothing inline.
    fn default() -> Self {
        Caps { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
    }
}

/// Memory of the peer, as the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Its address: that of the region, plus an offset into it.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}

/// A queue pair. It is its id's: [`SimDevice::destroy_qp`](crate::SimDevice::destroy_qp) ends it, and dropping this
/// handle does only once the id is gone.
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
    /// `EINVAL` if it was destroyed.
    pub fn state(&self) -> Result<QpState, Errno> {
        self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.state).ok_or(Errno::EINVAL))
    }

    /// Sends a range of a region; takes a receive of the peer. As other work requests it pins the region until its
    /// completion has been polled, or the QP is destroyed and its completions are gone; see [`Mr`].
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end, for an unusable region and one of another domain, before the QP is ready to send,
    /// after it was destroyed, and on a datagram QP; `ENOMEM` if its send queue is full: with work that is not done, or whose
    /// completions have not been polled.
    pub fn post_send(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::empty())?;
        let work = Work { wr_id, opcode: opcode::SEND, memory: Local::From(keyed_range) };
        self.fabric.with(|world| world.post_operation(self.no, work, Operation::Send))
    }

    /// Sends a range of a region as a datagram, which arrives or is lost without a word: nobody is there, no receive is
    /// posted or it is too short, or the queue key is not the receiver's. To a group it goes with the QP number
    /// 0xFFFFFF, and to every QP that is attached to it, its sender's own too if that one is (`rxe_rcv_mcast_pkt`).
    ///
    /// # Errors
    /// As [`Qp::post_send`], but on a connected QP; `EINVAL` also for more bytes than the port's active MTU
    /// ([`Config::mtu`](crate::Config::mtu)), and for a handle of another domain.
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

    /// Posts a range of a region for a message of the peer, or for a datagram and the [`GRH_LEN`](crate::GRH_LEN) bytes
    /// before it.
    ///
    /// # Errors
    /// `EINVAL` beyond the region's end, for an unusable region, one of another domain and one without
    /// [`Access::LOCAL_WRITE`], and after the QP was destroyed; `ENOMEM` if its receive queue is full, as for
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

    /// Writes a range of a region into memory of the peer, which does not notice.
    ///
    /// # Errors
    /// As [`Qp::post_send`].
    pub fn post_write(&mut self, wr_id: u64, mr: &Mr, range: Range<usize>, remote: Remote) -> Result<(), Errno> {
        let keyed_range = self.keyed_range(mr, range, Access::empty())?;
        let there = KeyedRange { addr: remote.addr, key: remote.rkey, len: keyed_range.len };
        let work = Work { wr_id, opcode: opcode::RDMA_WRITE, memory: Local::From(keyed_range) };
        self.fabric.with(|world| world.post_operation(self.no, work, |bytes| Operation::Write(there, bytes)))
    }

    /// A part of a region as a work request of this QP names it: one of the QP's domain that has these rights.
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
                // It has gone with its device. Its completions go now.
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
    /// Its bytes are taken from there when it is posted.
    From(KeyedRange),
    /// A read puts there what it gets.
    Into(KeyedRange),
    /// A window is bound to it.
    Bound(KeyedRange),
    /// It has none.
    Nothing,
}

/// What became of a command that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Done,
    /// Its completion will say so.
    Failed,
}

impl Local {
    /// The key that it pins: none if the device need not fetch anything.
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
    /// Whether what is sent from there is copied when it is posted.
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

    /// Queues a work request and sends it, to the peer of a connected QP. A datagram has left, and is complete, at
    /// once.
    fn post(
        &mut self,
        qp: QpNo,
        service: Service,
        work: Work,
        transfer: impl FnOnce(Option<QpNo>, u64, Vec<u8>) -> Transfer,
    ) -> Result<(), Errno> {
        let Some(mut pending) = self.accept_work(qp, service, work)? else { return Ok(()) };
        // The device begins at once, and takes the bytes now.
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return Ok(()) };
        let bytes = match work.memory {
            // The program copies them itself, and asks for no key.
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

    /// Queues a command to the device itself, which obeys at once, and says so as late as if a peer had been asked, so that
    /// completions keep their order. It fails like that if `obey` says nothing.
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

    /// Takes a work request, and what it pins, if the QP can have it. `None` if it was flushed at once.
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

    /// A work request fails before it has left.
    fn fail_work(&mut self, qp: QpNo, pending: &Pending, status: WcStatus) {
        self.finish_send(qp, pending, Sent::failed(status));
        self.qp_to_error(qp);
    }

    /// A work request is complete after that time, without an answer from outside.
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
