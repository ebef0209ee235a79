//! The blocks that the work requests of one queue have.

use alloc::boxed::Box;
use core::fmt;
use core::iter::repeat_with;
use core::mem;

use super::{Completion, Part, Parts, PostReason};

/// The blocks that the work requests of one queue have, in the order of the posts. For devices: the handle of a QP has
/// one for each of its queues, the handle of an SRQ has one.
///
/// A request is over when it is no longer in flight: its completion was polled, or for an unsignaled one that of a later
/// request. The device knows it by the number that it gives the request.
pub struct Lent<P> {
    /// A ring, without a gap between its requests. It has no places before the first request.
    ring: Box<[Option<Request<P>>]>,
    /// The place of the first request, and of the next one.
    first: usize,
    next: usize,
    /// The maximum number of requests that have blocks.
    max: u32,
}

struct Request<P> {
    number: u64,
    wr_id: u64,
    returns: Returns,
    parts: Parts<P>,
}

/// Where the blocks of a request go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Returns {
    /// To the application, when it reclaims them by the completion.
    ByCompletion,
    /// The request is unsignaled: to the application if it fails, else to their pools.
    OnFailure,
    /// The device has refused the request and may execute it nevertheless: to their pools.
    ToPool,
}

impl<P> Lent<P> {
    /// Creates the record of a queue that holds `max` requests. One that holds none has a place nevertheless, for the request
    /// that it refuses.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Lent { ring: Box::default(), first: 0, next: 0, max: max.max(1) }
    }

    fn after(&self, place: usize) -> usize {
        let after = place + 1;
        if after == self.ring.len() { 0 } else { after }
    }

    /// Whether there is a place for one more request.
    #[must_use]
    pub fn has_place(&self) -> bool {
        matches!(self.ring.get(self.next), Some(None))
    }

    /// Whether there are places for `count` more requests: they follow each other.
    fn has_room(&self, count: usize) -> bool {
        let Some(ahead) = count.checked_sub(1) else { return true };
        let (last, len) = (self.next.wrapping_add(ahead), self.ring.len());
        count <= len && matches!(self.ring.get(if last < len { last } else { last - len }), Some(None))
    }

    /// Checks that there is room for the blocks of `count` more requests. `is_over` says whether the request of a number
    /// is over. The first call allocates the room for all.
    ///
    /// # Errors
    /// [`PostReason::NotReclaimed`].
    pub fn check_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        if self.has_room(count) { Ok(()) } else { self.make_room(count, is_over) }
    }

    #[cold]
    fn make_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        if self.ring.is_empty() {
            self.ring = repeat_with(|| None).take(self.max as usize).collect();
        }
        self.search(is_over, |_| false);
        if self.has_room(count) { Ok(()) } else { Err(PostReason::NotReclaimed { max: self.max }) }
    }

    /// Adds the blocks of a request, for which there is room, and returns them. The device gives it a number.
    pub fn lend(&mut self, number: u64, wr_id: u64, returns: Returns, parts: Parts<P>) -> &[Part<P>] {
        let (request, next) = (Request { number, wr_id, returns, parts }, self.after(self.next));
        match self.ring.get_mut(self.next) {
            Some(place @ None) => {
                self.next = next;
                &place.insert(request).parts
            }
            // The device may have them.
            Some(Some(_)) | None => no_room(request),
        }
    }

    fn before(&self, place: usize) -> usize {
        place.checked_sub(1).unwrap_or(self.ring.len().saturating_sub(1))
    }

    /// Takes back the request that was added last, which is not posted after all, and returns its blocks.
    pub fn take_back(&mut self) -> Option<Parts<P>> {
        let last = self.before(self.next);
        let request = self.ring.get_mut(last)?.take()?;
        self.next = last;
        Some(request.parts)
    }

    /// Called when the device has refused the last `count` requests, and may execute them nevertheless. Their blocks return
    /// to their pools.
    pub fn note_refused(&mut self, count: usize) {
        let mut place = self.next;
        for _ in 0..count {
            place = self.before(place);
            if let Some(Some(request)) = self.ring.get_mut(place) {
                request.returns = Returns::ToPool;
            }
        }
    }

    /// Returns the blocks of the first request with the `wr_id` of the completion that is over; `None` if there is none.
    /// Those of unsignaled requests before it that are over return to their pools.
    pub fn reclaim(&mut self, completion: &Completion, is_over: impl Fn(u64) -> bool) -> Option<Parts<P>> {
        let wr_id = completion.wr_id;
        let is_signaled =
            move |request: &Request<P>| request.wr_id == wr_id && request.returns == Returns::ByCompletion;
        let after = self.after(self.first);
        let place = self.ring.get_mut(self.first)?;
        // The usual case: completions come in the order of the posts.
        if place.as_ref().is_some_and(|first| is_signaled(first) && is_over(first.number)) {
            self.first = after;
            return place.take().map(|request| request.parts);
        }
        // A success is never that of an unsignaled request.
        let has_failed = !completion.is_success();
        let is_unsignaled = move |request: &Request<P>| request.wr_id == wr_id && request.returns == Returns::OnFailure;
        self.search(is_over, move |request| is_signaled(request) || has_failed && is_unsignaled(request))
    }

    /// Removes those that are over, up to the first that is wanted, and returns its blocks. Leaves those that their
    /// completion returns. The blocks of the others return to their pools.
    #[cold]
    fn search(&mut self, is_over: impl Fn(u64) -> bool, is_wanted: impl Fn(&Request<P>) -> bool) -> Option<Parts<P>> {
        let mut at = self.first;
        for _ in 0..self.ring.len() {
            let Some(Some(request)) = self.ring.get(at) else { break };
            let is_over = is_over(request.number);
            if is_over && is_wanted(request) {
                return self.remove(at);
            }
            if is_over && request.returns != Returns::ByCompletion {
                self.remove(at);
            }
            at = self.after(at);
        }
        None
    }

    /// Removes a request. Those before it move on by one place.
    fn remove(&mut self, at: usize) -> Option<Parts<P>> {
        let removed = self.ring.get_mut(at)?.take();
        let mut to = at;
        while to != self.first {
            let from = self.before(to);
            self.ring.swap(from, to);
            to = from;
        }
        self.first = self.after(self.first);
        removed.map(|request| request.parts)
    }

    /// Whether no request has blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.ring.get(self.first), None | Some(None))
    }
}

#[cold]
fn no_room<'a, P>(request: Request<P>) -> &'a [Part<P>] {
    debug_assert!(false, "there is room");
    mem::forget(request);
    &[]
}

impl<P> fmt::Debug for Lent<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("requests", &self.ring.iter().flatten().count()).finish_non_exhaustive()
    }
}
