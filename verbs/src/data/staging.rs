//! A list of work requests in our memory, as ibv_post_send(3) and ibv_post_recv(3) take it.

use core::ptr;

use cmid_proto::Errno;

use crate::ffi::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// The memory of the lists of one work queue, whose requests are of the type `W`. It has room for as many requests and
/// ranges as the queue, and does not move.
pub(super) struct Staging<W> {
    sges: Vec<ibv_sge>,
    requests: Vec<W>,
    /// The ranges of the requests that are complete.
    used: usize,
}

// SAFETY: its pointers point into itself, and are set anew before each use.
unsafe impl<W> Send for Staging<W> {}
// SAFETY: it is used by `&mut` only.
unsafe impl<W> Sync for Staging<W> {}

/// A request in a list.
pub(super) trait Link {
    fn end(&mut self);
}

impl Link for ibv_send_wr {
    fn end(&mut self) {
        self.next = ptr::null_mut();
    }
}

impl Link for ibv_recv_wr {
    fn end(&mut self) {
        self.next = ptr::null_mut();
    }
}

impl<W: Link> Staging<W> {
    /// For a queue of so many requests of at most `max_sge` ranges.
    pub(super) fn of(capacity: u32, max_sge: u32) -> Box<Self> {
        let (requests, sges) = (capacity as usize, (capacity as usize).saturating_mul(max_sge as usize));
        Box::new(Staging { sges: Vec::with_capacity(sges), requests: Vec::with_capacity(requests), used: 0 })
    }

    pub(super) fn clear(&mut self) {
        self.sges.clear();
        self.requests.clear();
        self.used = 0;
    }

    /// Adds a range of the next request. An empty one is left out.
    ///
    /// # Errors
    /// `ENOMEM` if the list is full: it would move.
    #[inline]
    pub(super) fn add_range(&mut self, sge: ibv_sge) -> Result<(), Errno> {
        if sge.length != 0 {
            if self.sges.len() == self.sges.capacity() {
                return Err(Errno::ENOMEM);
            }
            self.sges.push(sge);
        }
        Ok(())
    }

    /// Adds a request, made of its ranges, their number, and the place of the next request.
    ///
    /// # Errors
    /// `ENOMEM` if the list is full.
    #[inline]
    pub(super) fn add(&mut self, make: impl FnOnce(*mut ibv_sge, i32, *mut W) -> W) -> Result<(), Errno> {
        if self.requests.len() == self.requests.capacity() {
            return Err(Errno::ENOMEM);
        }
        let sg_list = self.sges.as_mut_ptr().wrapping_add(self.used);
        let next = self.requests.as_mut_ptr().wrapping_add(self.requests.len() + 1);
        let request = make(sg_list, (self.sges.len() - self.used) as i32, next);
        self.requests.push(request);
        self.used = self.sges.len();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Ends the list, and returns its first request; null without requests. It is valid until `self` is used again.
    pub(super) fn list(&mut self) -> *mut W {
        let Some(last) = self.requests.last_mut() else { return ptr::null_mut() };
        last.end();
        self.requests.as_mut_ptr()
    }

    /// The number of requests before `bad`, which the provider has not posted.
    pub(super) fn before(&self, bad: *const W) -> usize {
        self.requests.iter().position(|request| ptr::eq(request, bad)).unwrap_or(0)
    }
}
