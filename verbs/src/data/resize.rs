//! Changes the depth of a CQ.

use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use cmid_proto::Errno;
use cmid_proto::datapath::{Capacity, CreateReason};

use crate::accounting::poll::Provider as _;
use crate::data::cq::CqInner;
use crate::data::create_reasons::cq_reason;
use crate::data::vendor::Vendor;
use crate::errno;
use crate::ffi::{self, PollCq, c_int, c_void, ibv_cq, ibv_wc};

/// The function that polls a CQ: that of its provider, or one that fails, after a resize has lost the queue.
pub(super) struct PollCall(AtomicPtr<c_void>);

impl PollCall {
    pub(super) fn new(poll: PollCq) -> Self {
        PollCall(AtomicPtr::new(poll as *mut c_void))
    }

    pub(super) fn get(&self) -> PollCq {
        let poll = self.0.load(Ordering::Relaxed);
        // SAFETY: `new` and `lose` store functions of this type, and nothing else does.
        unsafe { mem::transmute::<*mut c_void, PollCq>(poll) }
    }

    fn lose(&self) {
        self.0.store(fail as PollCq as *mut c_void, Ordering::Relaxed);
    }
}

unsafe extern "C" fn fail(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    -1
}

/// Returns the number of entries of a CQ as its provider has rounded it.
///
/// # Safety
/// The CQ is alive. It is being created or resized by this thread, or the caller has its handle by `&mut`: only
/// ibv_resize_cq(3) writes the field.
pub(super) unsafe fn entries_of(cq: NonNull<ibv_cq>) -> u32 {
    // SAFETY: as the caller promises.
    u32::try_from(unsafe { (*cq.as_ptr()).cqe }).unwrap_or(0)
}

/// Returns the number of completions that a CQ may hold: what was requested, although its provider has rounded the
/// entries up. The other entries are the provider's: libbnxt_re tells the device late of what is polled
/// (`bnxt_re_check_and_ring_cq_db`), and qedr reports one entry more than its device has (`qedr_init_cq_params`).
pub(super) fn usable(requested: u32, entries: u32, each: u32) -> u32 {
    requested.min(entries / each)
}

impl CqInner {
    /// See [`CompletionQueue::resize`](cmid_proto::datapath::CompletionQueue::resize). The caller has the handle of the CQ by
    /// `&mut`, so no thread polls, and no QP that is being created reserves room. Posts to its QPs are none of its concern.
    ///
    /// The library of rxe unmaps the queue once the kernel has resized it, and maps the new one. If it cannot, it returns an
    /// error and has no queue, which the next poll would follow (`rxe_resize_cq`). The new depth in the CQ tells that, so a
    /// depth that it may round to the present one is not passed on. Polls fail with `EIO` then.
    pub(super) fn resize(&self, depth: u32) -> Result<(), CreateReason> {
        let room = self.cq_slots().room();
        room.check_depth(depth)?;
        if depth == 0 {
            return Err(CreateReason::Zero(Capacity::Depth));
        }
        if depth == room.depth() {
            return Ok(());
        }
        let (each, vendor) = (self.context().entries_each(), self.context().vendor()?);
        // SAFETY: the CQ is alive, and the handle is borrowed by `&mut`.
        let before = unsafe { entries_of(self.raw()) };
        let resized = match entries_to_request(vendor, depth, each, before) {
            Ok(None) => {
                self.cq_slots().set_depth(depth);
                return Ok(());
            }
            // SAFETY: the CQ is alive, and the handle is borrowed by `&mut`.
            Ok(Some(entries)) => errno::of_call(|| unsafe { ffi::ibv_resize_cq(self.as_ptr(), entries) }),
            Err(errno) => Err(errno),
        };
        // SAFETY: the CQ is alive, and the handle is borrowed by `&mut`.
        let after = unsafe { entries_of(self.raw()) };
        match resized {
            Ok(()) => {
                self.cq_slots().set_depth(usable(depth, after, each));
                Ok(())
            }
            Err(errno) => {
                if after != before {
                    self.poll_call().lose();
                }
                Err(cq_reason(self.context(), depth, 0, errno))
            }
        }
    }
}

/// Returns the entries to request of the provider for this depth; `None` if the queue of rxe stays as it is.
fn entries_to_request(vendor: Vendor, depth: u32, each: u32, present: u32) -> Result<Option<c_int>, Errno> {
    if vendor.is_rxe() && is_same_size(depth, present) {
        return Ok(None);
    }
    if !vendor.resizes() {
        return Err(Errno::EOPNOTSUPP);
    }
    c_int::try_from(depth.saturating_mul(each)).map(Some).map_err(|_| Errno::EINVAL)
}

/// Whether rxe makes a queue of this depth as large as the present one, and no larger: a power of two, of which one
/// slot stays empty.
fn is_same_size(depth: u32, present: u32) -> bool {
    let size = |depth: u32| (u64::from(depth) + 1).next_power_of_two();
    depth <= present && size(depth) == size(present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cq_holds_what_was_requested_of_it_and_not_what_its_provider_has_made_of_it() {
        for (requested, entries, each, holds) in
            [(64, 256, 1, 64), (100, 128, 1, 100), (100, 256, 2, 100), (8, 8, 2, 4)]
        {
            assert_eq!(usable(requested, entries, each), holds, "{requested} {entries} {each}");
        }
    }

    #[test]
    fn a_depth_of_the_same_power_of_two_is_the_same_size_unless_it_is_larger() {
        for (depth, present, same) in
            [(63, 63, true), (32, 63, true), (31, 63, false), (64, 63, false), (127, 100, false)]
        {
            assert_eq!(is_same_size(depth, present), same, "{depth} {present}");
        }
        assert!(!is_same_size(u32::MAX, 1));
    }

    #[test]
    fn a_provider_is_asked_for_what_changes_its_queue() {
        let [rxe, siw, mellanox, broadcom] = [0xff_ffff, 0x62_6d74, 0x02c9, 0x14e4].map(Vendor);
        for (vendor, depth, each, requested) in [
            (rxe, 40, 1, Ok(None)),
            (rxe, 64, 1, Ok(Some(64))),
            (rxe, 20, 1, Ok(Some(20))),
            (siw, 40, 2, Ok(Some(80))),
            (mellanox, 40, 1, Ok(Some(40))),
            (siw, 1 << 30, 2, Err(Errno::EINVAL)),
            (mellanox, u32::MAX, 2, Err(Errno::EINVAL)),
            (broadcom, 40, 1, Err(Errno::EOPNOTSUPP)),
        ] {
            assert_eq!(entries_to_request(vendor, depth, each, 63), requested, "{vendor:?} {depth}");
        }
    }

    #[test]
    fn a_cq_that_is_lost_is_polled_no_more() {
        unsafe extern "C" fn empty(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
            0
        }
        let call = PollCall::new(empty);
        let poll = |call: &PollCall| {
            // SAFETY: neither function follows the pointers.
            unsafe { call.get()(core::ptr::null_mut(), 1, core::ptr::null_mut()) }
        };
        assert_eq!(poll(&call), 0);
        call.lose();
        assert_eq!(poll(&call), -1);
    }
}
