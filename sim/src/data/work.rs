//! The send queue of a QP: a work request is queued, executed by the device, and sent to the peer.

use std::time::Duration;

use cmid_proto::datapath::{AsyncEventKind, Caps, PostReason, To, WcStatus};
use cmid_proto::{Errno, Service};
use smallvec::SmallVec;

use crate::data::action::{Action, Command, Local};
use crate::data::ah::Ah;
use crate::data::packet::Transfer;
use crate::data::pending::{Order, Pending, take, take_next};
use crate::data::qp::PairState;
use crate::data::queues::Sent;
use crate::data::space::{Bytes, KeyedRange, Ranges};
use crate::fabric::config::Flavour;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::{HostNo, QpNo};
use crate::kernel::due::Due;

/// The destination of a datagram.
pub(crate) type Peer<'a> = To<'a, Ah>;

/// What is posted at once; usually one.
pub(crate) type Batch<T> = SmallVec<[T; 1]>;

/// The post of a batch ended before this request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    /// The number of requests before it, which are posted.
    pub(crate) posted: usize,
    /// The number of requests that are in the queue: more if the kernel has refused the doorbell.
    pub(crate) filed: usize,
    pub(crate) reason: PostReason,
}

impl From<PostReason> for Stopped {
    fn from(reason: PostReason) -> Self {
        Stopped { posted: 0, filed: 0, reason }
    }
}

impl Stopped {
    /// The post ended because the queue took no more.
    pub(crate) fn after(posted: usize, reason: PostReason) -> Self {
        Stopped { posted, filed: posted, reason }
    }

    /// Returns how many requests of a post are in the queue.
    pub(crate) fn filed(posted: Result<usize, Stopped>) -> usize {
        posted.unwrap_or_else(|stopped| stopped.filed)
    }
}

impl World {
    /// `ibv_post_send`: puts work requests into the queue, and rings the doorbell. If the kernel refuses it, all of them are in
    /// the queue.
    pub(crate) fn post_all(&mut self, qp: QpNo, batch: Batch<Box<Pending>>) -> Result<usize, Stopped> {
        let count = batch.len();
        for (posted, work) in batch.into_iter().enumerate() {
            self.enqueue(qp, work).map_err(|reason| Stopped::after(posted, reason))?;
        }
        self.ring(qp).map_err(|reason| Stopped { posted: 0, filed: count, reason })?;
        Ok(count)
    }

    /// Queues a work request and pins its regions, if the QP accepts it.
    pub(crate) fn enqueue(&mut self, qp: QpNo, mut work: Box<Pending>) -> Result<(), PostReason> {
        let pair = self.queues.pairs.get_mut(&qp).ok_or(PostReason::Gone)?;
        if work.action.as_ref().is_some_and(|action| action.service() != pair.service) {
            return Err(match pair.service {
                Service::Connected => PostReason::IsConnected,
                Service::Datagram => PostReason::IsDatagram,
            });
        }
        if matches!(pair.state, PairState::Init | PairState::Rtr) {
            return Err(PostReason::TooEarly(pair.state.into()));
        }
        if pair.send_room() == 0 {
            return Err(PostReason::QueueFull { max: pair.caps.max_send_wr });
        }
        if let Local::From(ranges) = &work.local {
            // siw does not take inline data of a send with invalidate (`siw_activate_tx`).
            let is_copied = pair.order == Order::OfPosts || !work.action.as_ref().is_some_and(Action::invalidates);
            if is_copied && is_inline(&pair.caps, ranges) {
                let bytes = self.memory.space.all_bytes(ranges).ok_or(PostReason::NotRegistered)?;
                work.local = Local::Inline(bytes);
            }
        }
        pair.file(work);
        Ok(())
    }

    /// Rings the doorbell of a send queue. If the kernel refuses, the device executes the queue with the next doorbell
    /// ([`Host::fail_next_doorbell`](crate::Host::fail_next_doorbell)).
    pub(crate) fn ring(&mut self, qp: QpNo) -> Result<(), PostReason> {
        let mut rung = self.doorbell(qp.host);
        if let Some(pair) = self.queues.pairs.get_mut(&qp) {
            if pair.rings_no_more() {
                return Ok(());
            }
            if pair.state == PairState::Closing {
                rung = Err(PostReason::Device(Errno::ENOTCONN));
            }
            if rung.is_err() {
                let refused = pair.sends.iter_mut().filter(|pending| pending.sequence > pair.rung);
                refused.for_each(|pending| pending.is_withdrawn = true);
                return rung;
            }
            pair.rung = pair.sequence;
        }
        self.run_sends(qp);
        Ok(())
    }

    /// Fails if the kernel refuses a doorbell on this host.
    pub(crate) fn doorbell(&mut self, host: HostNo) -> Result<(), PostReason> {
        let refused = self.hosts.get_mut(host.0).and_then(|host| host.faults.doorbell.pop_front());
        refused.map_or(Ok(()), |errno| Err(PostReason::Device(errno)))
    }

    /// Begins with the work requests of a send queue that wait for nothing: sends each to the peer, or obeys a command. A
    /// datagram is sent and complete at once. In the error state it flushes them.
    pub(crate) fn run_sends(&mut self, qp: QpNo) {
        loop {
            let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
            match pair.state {
                PairState::Init | PairState::Rtr | PairState::Suspended | PairState::Closing => return,
                // The kernel's queue is that of the library, which it looks at when the state changes only
                // (`siw_post_send`).
                PairState::Err if pair.order == Order::OfTransport => return,
                PairState::Err => {
                    self.flush_sends(qp);
                    return self.last_wqe_reached(qp);
                }
                PairState::Rts => {}
            }
            let (pd, peer, order) = (pair.pd, pair.peer, pair.order);
            let Some((next, action)) = take_next(&mut pair.sends, pair.rung, pair.reads_at_once) else { return };
            let (sequence, wr_id) = (next.sequence, next.wr_id);
            let is_done_by_transport = match &action {
                Action::Command(command) => {
                    self.obey(qp, sequence, *command);
                    continue;
                }
                Action::Datagram { .. } => true,
                Action::Send(_) | Action::Write(..) => order == Order::OfTransport,
                Action::Read(_) | Action::CompareSwap(..) | Action::FetchAdd(..) => false,
            };
            let (bytes, sources) = match &next.local {
                Local::Inline(bytes) => (Some(Bytes::from_slice(bytes)), Ranges::new()),
                // TCP has its own copy.
                Local::From(ranges) if is_done_by_transport => (self.memory.gather(pd, ranges), Ranges::new()),
                Local::From(ranges) => (self.memory.gather(pd, ranges), ranges.clone()),
                Local::Into(_) | Local::Bound(_) | Local::Nothing => (Some(Bytes::new()), Ranges::new()),
            };
            let Some(bytes) = bytes else {
                self.fail_work(qp, sequence, WcStatus::LOC_PROT_ERR);
                continue;
            };
            if is_done_by_transport {
                self.complete_locally(qp, sequence, LOCAL_WORK);
            }
            if let Some(transfer) = action.transfer(qp, peer, (sequence, wr_id), sources, bytes) {
                self.launch(transfer);
            }
        }
    }

    /// Executes a command to the device itself. The completion has the same delay as a request to the peer, and it is not
    /// before those of earlier requests, because completions keep their order. If the device rejects it, the work
    /// request fails: Linux 6.1 completes it with the failure, after those before it; 6.12 moves the QP to its error
    /// state first, which flushes it like the others (`rxe_requester`, `rxe_completer`).
    fn obey(&mut self, qp: QpNo, sequence: u64, command: Command) {
        let Some(pd) = self.queues.pairs.get(&qp).map(|pair| pair.pd) else { return };
        let obeyed = match &command {
            Command::Bind(bind) => self.memory.bind_mw(qp, pd, bind).map(|window| self.rebind(window, Some(qp))),
            Command::Invalidate(rkey) => self.invalidate_mw(qp.host, *rkey),
        };
        if obeyed.is_none() {
            return match self.config.flavour {
                Flavour::Linux6_1 => self.fail_work(qp, sequence, command.failure()),
                Flavour::Linux6_12 => self.qp_to_error(qp),
            };
        }
        self.sweep = true;
        self.complete_locally(qp, sequence, self.config.latency.saturating_mul(2));
    }

    /// Fails a work request before it is sent: on RoCE after those before it, and nothing behind it is sent.
    fn fail_work(&mut self, qp: QpNo, sequence: u64, status: WcStatus) {
        let is_iwarp = self.is_iwarp(qp.host);
        let Some(pair) = self.queues.pairs.get_mut(&qp) else { return };
        if !is_iwarp {
            let rejected = pair.sends.iter_mut().find(|pending| pending.sequence == sequence);
            rejected.into_iter().for_each(|pending| pending.executed = Some(status));
            return self.finish_executed(qp);
        }
        // `siw_qp_sq_process`
        if let Some(pending) = take(&mut pair.sends, sequence) {
            self.finish_send(qp, &pending, Sent::failed(WcStatus::LOC_QP_OP_ERR));
            self.siw_event(qp, AsyncEventKind::QP_FATAL);
        }
        self.siw_suspend(qp);
    }

    /// Completes a work request after this time, without an answer of the peer.
    fn complete_locally(&mut self, qp: QpNo, sequence: u64, after: Duration) {
        let done = Transfer::Answer { to: qp, sequence, result: Ok(Vec::new()) };
        self.timers.arm(self.now.after(after), Due::Data(done));
    }
}

/// Whether the post copies a send of these ranges.
fn is_inline(caps: &Caps, ranges: &[KeyedRange]) -> bool {
    ranges.iter().map(|range| range.len).sum::<usize>() <= caps.max_inline as usize
}

#[cfg(test)]
mod tests {
    use cmid_proto::datapath::WcOpcode;

    use super::*;
    use crate::data::queues::Pair;
    use crate::fabric::config::Config;
    use crate::index::{CqNo, PdNo};
    use crate::kernel::host::HostState;

    #[test]
    fn a_request_that_is_not_signaled_wakes_its_host_only_if_it_fails() {
        let mut world = World::new(Config::default());
        world.hosts.push(HostState::new(&[]));
        let qp = QpNo { host: HostNo(0), num: 1 };
        let pair = Pair::new(Service::Connected, PdNo(0), CqNo(0), CqNo(0), Caps::default());
        world.queues.pairs.insert(qp, Box::new(pair));
        let (ok, failed) = (WcStatus::SUCCESS, WcStatus::WR_FLUSH_ERR);
        for (signaled, status, wakes) in [(true, ok, true), (false, ok, false), (false, failed, true)] {
            let pending = Box::new(Pending {
                sequence: 1,
                wr_id: 0,
                opcode: WcOpcode::SEND,
                signaled,
                solicited: false,
                is_fenced: false,
                local: Local::Nothing,
                action: None,
                is_withdrawn: false,
                executed: None,
            });
            world.finish_send(qp, &pending, Sent { status, byte_len: 0, scatter: Vec::new() });
            let mut woken = Vec::new();
            world.take_news(|host| woken.push(host));
            assert_eq!(woken.contains(&qp.host), wakes, "{signaled} {status}");
        }
    }
}
