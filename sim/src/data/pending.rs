//! A request of a send queue: until it completes, and until its completion is polled.

use std::collections::VecDeque;

use cmid_proto::datapath::{SendFlags, WcOpcode, WcStatus};

use crate::data::action::{Action, Local};
use crate::data::space::Pins;

/// A posted request that has not completed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) sequence: u64,
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) signaled: bool,
    /// Whether it was posted as solicited, which siw tells of its own completion too (`siw_sqe_complete`).
    pub(crate) solicited: bool,
    /// Whether it waits for the reads and atomic operations before it.
    pub(crate) is_fenced: bool,
    pub(crate) local: Local,
    /// What the device does for it, until it begins.
    pub(crate) action: Option<Action>,
    /// Whether its post was refused: its completion is not for the program.
    pub(crate) is_withdrawn: bool,
    /// The status that it ends with once the requests before it are answered: of a command that the device has executed,
    /// or of a request that it has rejected.
    pub(crate) executed: Option<WcStatus>,
}

impl Pending {
    /// Returns a request that is not in a queue yet.
    pub(crate) fn new(wr_id: u64, opcode: WcOpcode, flags: SendFlags, local: Local, action: Action) -> Box<Self> {
        Box::new(Pending {
            sequence: 0,
            wr_id,
            opcode,
            signaled: flags.contains(SendFlags::SIGNALED),
            solicited: flags.contains(SendFlags::SOLICITED),
            is_fenced: flags.contains(SendFlags::FENCE),
            local,
            action: Some(action),
            is_withdrawn: false,
            executed: None,
        })
    }

    /// Whether it is executed by the local device alone.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.opcode, WcOpcode::BIND_MW | WcOpcode::LOCAL_INV)
    }

    fn is_read(&self) -> bool {
        is_read(self.opcode)
    }

    fn is_rejected(&self) -> bool {
        self.executed.is_some_and(|status| status != WcStatus::SUCCESS)
    }
}

/// Whether the peer answers it with bytes: a read or an atomic operation.
pub(crate) fn is_read(opcode: WcOpcode) -> bool {
    matches!(opcode, WcOpcode::RDMA_READ | WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD)
}

/// Takes what the device does next: for the first request that has not begun, if the doorbell was rung for it. `None` if
/// it must wait: if it is fenced for reads and atomic operations (IBA 10.8.3.3), a local invalidate for all requests
/// before it (IBA 10.6.5.1, `rxe_wqe_is_fenced`), and a read while the peer answers as many as it can (`check_init_depth`).
/// Behind a request that is rejected it waits for the error state.
pub(crate) fn take_next(
    sends: &mut VecDeque<Box<Pending>>,
    rung: u64,
    reads_at_once: Option<usize>,
) -> Option<(&Pending, Action)> {
    let at = sends.iter().position(|pending| pending.action.is_some())?;
    let next = sends.get(at).filter(|next| next.sequence <= rung)?;
    let reads = || sends.iter().take(at).filter(|pending| pending.is_read()).count();
    let waits = match next.opcode {
        _ if sends.iter().take(at).any(|pending| pending.is_rejected()) => true,
        WcOpcode::LOCAL_INV => at > 0,
        _ => next.is_fenced && reads() > 0 || next.is_read() && reads_at_once.is_some_and(|most| reads() >= most),
    };
    let next = sends.get_mut(at).filter(|_| !waits)?;
    let action = next.action.take()?;
    Some((next, action))
}

/// Takes a request that has not completed.
pub(crate) fn take(sends: &mut VecDeque<Box<Pending>>, sequence: u64) -> Option<Box<Pending>> {
    let at = sends.iter().position(|pending| pending.sequence == sequence)?;
    sends.remove(at)
}

/// A request of a send queue, until its completion, or that of a later one, is polled.
#[derive(Debug)]
pub(crate) struct Filed {
    pub(crate) sequence: u64,
    pub(crate) pins: Pins,
}

/// The order in which the requests of a send queue complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// That of the posts, as on InfiniBand and RoCE.
    OfPosts,
    /// As on soft-iWARP: sends and writes when TCP has them, reads when they are answered. So each request has a completion
    /// of its own, which the program sees if the request is signaled or has failed.
    OfTransport,
}

/// Removes the requests that are over once the completion of `sequence` is polled.
pub(crate) fn retire(filed: &mut VecDeque<Filed>, sequence: u64, order: Order) {
    let at = filed.partition_point(|filed| filed.sequence < sequence);
    if filed.get(at).is_none_or(|done| done.sequence != sequence) {
        return;
    }
    match order {
        Order::OfPosts => drop(filed.drain(..=at)),
        Order::OfTransport => drop(filed.remove(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_ends_all_requests_before_it_where_the_posts_order_them() {
        for (order, left) in [(Order::OfPosts, [&[3][..], &[3], &[]]), (Order::OfTransport, [&[1, 3], &[1, 3], &[1]])] {
            let mut all: VecDeque<_> = [1, 2, 3].map(|sequence| Filed { sequence, pins: Pins::new() }).into();
            let after = [2, 2, 3].map(|sequence| {
                retire(&mut all, sequence, order);
                all.iter().map(|filed| filed.sequence).collect::<Vec<_>>()
            });
            assert_eq!(after, left, "{order:?}");
        }
    }
}
