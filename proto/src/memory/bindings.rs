//! The memory windows that may be bound to the MRs of one PD.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::datapath::{Completion, WcFlags, WcOpcode};
use crate::memory::{Access, Traffic};

/// Records which memory windows may be bound to which MRs of a PD. A peer accesses an MR through a window by the rights
/// of the window, also after the MR has lost them in a re-registration, and not every provider refuses to deregister an
/// MR with bound windows (mlx5 does not look). So a binding counts from the post of the bind until it is certain that
/// the window is not bound:
///
/// - the window is deallocated;
/// - a successful completion of an invalidation of the window by this side was polled, on the QP of the bind;
/// - a receive that reports the invalidation by the peer was polled on that QP, and it can be of no window that was
///   deallocated before.
///
/// A bind whose post or completion has failed counts too: a provider may have queued it before it failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bindings {
    bindings: Vec<Binding>,
    /// The posted invalidations without a polled completion, in the order of their posts.
    invalidations: VecDeque<Invalidation>,
    /// By the number of the QP, the keys of bindings that have ended although no invalidation of them was polled: of
    /// deallocated windows, and of those that were bound again before this side invalidated them. A receive that is
    /// polled later may report the peer's invalidation of such a binding, when another one has its key.
    left: BTreeMap<u32, Vec<u32>>,
    last: u64,
}

/// A window that may be bound to an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Binding {
    window: u64,
    bind: Bind,
    end: End,
}

/// A bind of a window: what the work request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// The number of the QP.
    pub qp_num: u32,
    /// The local key of the MR.
    pub lkey: u32,
    /// The key of the window after the bind.
    pub rkey: u32,
    /// The rights of the window.
    pub access: Access,
}

/// What ends a binding, besides the deallocation of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// An invalidation. None is posted yet.
    Invalidation,
    /// The posted invalidation of this number.
    Posted(u64),
    /// Nothing: it is not certain what the device has queued.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Invalidation {
    qp_num: u32,
    number: u64,
}

impl Bindings {
    /// Creates an empty record.
    #[must_use]
    pub const fn new() -> Self {
        Bindings { bindings: Vec::new(), invalidations: VecDeque::new(), left: BTreeMap::new(), last: 0 }
    }

    /// The most binds of one window that count at a time.
    pub const BINDS_MAX: usize = 256;

    /// The most invalidations in a PD that were posted and have no polled success.
    pub const INVALIDATIONS_MAX: usize = 1 << 16;

    /// The most keys of deallocated windows that are recorded of a QP. With so many each key of the QP counts as one of
    /// them.
    pub const LEFT_MAX: usize = 1 << 10;

    /// Whether a bind of a window may be posted. Binds that have failed count too, so a program that posts them for ever would
    /// need memory for ever: such a window is to be deallocated.
    #[must_use]
    pub fn may_bind(&self, window: u64) -> bool {
        let binds = self.bindings.iter().filter(|binding| binding.window == window).count();
        binds < Bindings::BINDS_MAX && self.invalidations.len() < Bindings::INVALIDATIONS_MAX
    }

    /// Records a bind of a window, before its post. `window` identifies the window in this PD.
    pub fn bind(&mut self, window: u64, bind: Bind) {
        self.bindings.push(Binding { window, bind, end: End::Invalidation });
    }

    /// Records that the last bind of this window was not accepted by the provider. It may be queued nevertheless.
    pub fn bind_failed(&mut self, window: u64) {
        if let Some(last) = self.bindings.iter_mut().rfind(|binding| binding.window == window) {
            last.end = End::Unknown;
        }
    }

    /// Whether an invalidation of a window may be posted: the window was bound through this QP last, and is not
    /// invalidated. The kernel follows null pointers when a window is not bound (`rxe_do_invalidate_mw` of Linux 6.12).
    #[must_use]
    pub fn may_invalidate(&self, window: u64, qp_num: u32) -> bool {
        let last = self.bindings.iter().rfind(|binding| binding.window == window);
        last.is_some_and(|last| last.bind.qp_num == qp_num && last.end == End::Invalidation)
    }

    /// Records an invalidation of a window, before its post. Returns its number.
    pub fn invalidate(&mut self, window: u64, qp_num: u32) -> u64 {
        self.last += 1;
        let number = self.last;
        self.invalidations.push_back(Invalidation { qp_num, number });
        for binding in &mut self.bindings {
            if binding.window == window && binding.bind.qp_num == qp_num && binding.end == End::Invalidation {
                binding.end = End::Posted(number);
            }
        }
        number
    }

    /// Records that the invalidation of this number was not accepted by the provider. It may be queued nevertheless, so its
    /// number stays: completions of later ones then end too few bindings, never too many.
    pub fn invalidate_failed(&mut self, number: u64) {
        for binding in &mut self.bindings {
            if binding.end == End::Posted(number) {
                binding.end = End::Unknown;
            }
        }
    }

    /// Handles a polled completion of a QP through which windows were bound. Other completions have no effect.
    pub fn handle_completion(&mut self, completion: &Completion) {
        let qp_num = completion.qp_num;
        if Bindings::is_local(completion) {
            // The requests of a send queue complete in order.
            let first = self.invalidations.iter().position(|posted| posted.qp_num == qp_num);
            if let Some(Invalidation { number, .. }) = first.and_then(|first| self.invalidations.remove(first)) {
                // The last bind of the window is what it has ended.
                let last = self.bindings.iter().rposition(|binding| binding.end == End::Posted(number));
                last.map(|last| self.bindings.remove(last));
                self.leave(|binding| binding.end == End::Posted(number));
            }
        } else if Bindings::is_by_peer(completion) {
            // Only the first: a window has each key again after 256 binds, and a completion is of one of them. When a
            // later one was executed, the first was over. If that is not certain to end, the completion may be of it.
            let key = (qp_num, completion.imm_data);
            let of_key = |Binding { bind, .. }: &Binding| (bind.qp_num, bind.rkey) == key;
            if let Some(first) = self.bindings.iter().position(of_key) {
                match (self.is_left(key), self.bindings[first].end) {
                    (_, End::Unknown) | (true, End::Posted(_)) => {}
                    // It is of this window or of a deallocated one: this one may be bound, or not.
                    (true, End::Invalidation) => self.bindings[first].end = End::Unknown,
                    (false, _) => drop(self.bindings.remove(first)),
                }
            }
        }
    }

    /// Whether a completion may end bindings ([`Bindings::handle_completion`]).
    #[must_use]
    pub fn concerns(completion: &Completion) -> bool {
        Bindings::is_local(completion) || Bindings::is_by_peer(completion)
    }

    fn is_local(completion: &Completion) -> bool {
        completion.is_success() && completion.opcode == WcOpcode::LOCAL_INV
    }

    /// Whether a receive reports an invalidation by the peer. Soft-RoCE sets another flag for it, which the receives of
    /// connections do not have otherwise. Immediate data of the peer's choice is no key.
    fn is_by_peer(completion: &Completion) -> bool {
        let flags = WcFlags::WITH_INV.union(WcFlags::IP_CSUM_OK);
        let is_received = completion.is_success() && completion.opcode == WcOpcode::RECV;
        is_received && completion.flags.intersects(flags) && !completion.flags.contains(WcFlags::WITH_IMM)
    }

    fn is_left(&self, (qp_num, rkey): (u32, u32)) -> bool {
        self.left.get(&qp_num).is_some_and(|keys| keys.len() == Bindings::LEFT_MAX || keys.contains(&rkey))
    }

    /// Ends the bindings of a window that is deallocated, or whose device is gone. If another window gets one of its
    /// keys, the peer's invalidation does not end the binding of that one.
    pub fn dealloc(&mut self, window: u64) {
        self.leave(|binding| binding.window == window);
    }

    fn leave(&mut self, is_over: impl Fn(&Binding) -> bool) {
        for Binding { bind, .. } in self.bindings.iter().filter(|binding| is_over(binding)) {
            let keys = self.left.entry(bind.qp_num).or_default();
            if keys.len() < Bindings::LEFT_MAX && !keys.contains(&bind.rkey) {
                keys.push(bind.rkey);
            }
        }
        self.bindings.retain(|binding| !is_over(binding));
    }

    /// Forgets the invalidations of a QP of this number, and the keys of ended bindings. Called before the first bind
    /// through a QP, and before the destruction of a QP with windows.
    pub fn reuse(&mut self, qp_num: u32) {
        self.invalidations.retain(|posted| posted.qp_num != qp_num);
        self.left.remove(&qp_num);
    }

    /// Whether a window may be bound by the bind that gave it this remote key.
    #[must_use]
    pub fn is_bound(&self, window: u64, rkey: u32) -> bool {
        self.bindings.iter().any(|binding| (binding.window, binding.bind.rkey) == (window, rkey))
    }

    /// Returns the rights of all windows that may be bound to the MR with this key; `None` if no window is.
    #[must_use]
    pub fn of(&self, lkey: u32) -> Option<Access> {
        let bound = self.bindings.iter().filter(|binding| binding.bind.lkey == lkey);
        bound.map(|binding| binding.bind.access).reduce(Access::union)
    }

    /// Returns [`Traffic::WindowBound`] if a window may be bound to the MR with this key.
    #[must_use]
    pub fn traffic(&self, lkey: u32) -> Traffic {
        if self.of(lkey).is_some() { Traffic::WindowBound } else { Traffic::Quiet }
    }
}

#[cfg(test)]
mod tests;
