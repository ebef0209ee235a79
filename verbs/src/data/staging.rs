//! A batch of work requests in our memory, linked as ibv_post_send(3) and ibv_post_recv(3) take it.

use core::ptr;

use crate::ffi::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// The memory of the batches of one QP. It grows to the largest batch, and is used again.
#[derive(Default)]
pub(super) struct Staging {
    sges: Vec<ibv_sge>,
    sends: Vec<ibv_send_wr>,
    recvs: Vec<ibv_recv_wr>,
}

// SAFETY: its pointers point into itself, and are set anew before each use.
unsafe impl Send for Staging {}
// SAFETY: it is used by `&mut` only.
unsafe impl Sync for Staging {}

impl Staging {
    pub(super) fn clear(&mut self) {
        self.sges.clear();
        self.sends.clear();
        self.recvs.clear();
    }

    /// Adds a request and its ranges, of which `num_sge` has the number.
    pub(super) fn push_send(&mut self, request: ibv_send_wr, sges: &[ibv_sge]) {
        self.sges.extend_from_slice(sges);
        self.sends.push(request);
    }

    pub(super) fn push_recv(&mut self, request: ibv_recv_wr, sges: &[ibv_sge]) {
        self.sges.extend_from_slice(sges);
        self.recvs.push(request);
    }

    pub(super) fn len(&self) -> usize {
        self.sends.len() + self.recvs.len()
    }

    /// Links the requests of a send queue. The list is valid until `self` is used again. Null without requests.
    pub(super) fn link_sends(&mut self) -> *mut ibv_send_wr {
        let (mut next, mut end) = (ptr::null_mut(), self.sges.len());
        let sges = self.sges.as_mut_ptr();
        for request in self.sends.iter_mut().rev() {
            end = end.saturating_sub(request.num_sge.unsigned_abs() as usize);
            (request.sg_list, request.next) = (sges.wrapping_add(end), next);
            next = request;
        }
        next
    }

    /// Links the requests of a receive queue, as [`Staging::link_sends`].
    pub(super) fn link_recvs(&mut self) -> *mut ibv_recv_wr {
        let (mut next, mut end) = (ptr::null_mut(), self.sges.len());
        let sges = self.sges.as_mut_ptr();
        for request in self.recvs.iter_mut().rev() {
            end = end.saturating_sub(request.num_sge.unsigned_abs() as usize);
            (request.sg_list, request.next) = (sges.wrapping_add(end), next);
            next = request;
        }
        next
    }

    /// The number of requests of a send queue before `bad`, which a provider has not posted.
    pub(super) fn sends_before(&self, bad: *const ibv_send_wr) -> usize {
        self.sends.iter().position(|request| ptr::eq(request, bad)).unwrap_or(0)
    }

    /// The number of requests of a receive queue before `bad`.
    pub(super) fn recvs_before(&self, bad: *const ibv_recv_wr) -> usize {
        self.recvs.iter().position(|request| ptr::eq(request, bad)).unwrap_or(0)
    }
}
