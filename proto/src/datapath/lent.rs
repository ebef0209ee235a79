//! The blocks that the work requests of one queue have.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::{Completion, Parts, PostReason};

/// The blocks that the work requests of one queue have, in the order of the posts. For devices: the handle of a QP has
/// one for each of its queues, the handle of an SRQ has one.
///
/// A request is over when it is no longer in flight: its completion was polled, or for an unsignaled one that of a later
/// request. The device knows it by the number that it gave the request.
pub struct Lent<P> {
    /// A ring; its length is a power of two, or 0 before the first request.
    ring: Box<[Option<Request<P>>]>,
    /// The count of the first request in the ring, and of the next one. They wrap around.
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
    /// Creates the record of a queue that holds `max` requests.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Lent { ring: Box::default(), first: 0, next: 0, max }
    }

    fn len(&self) -> usize {
        self.next.wrapping_sub(self.first)
    }

    /// The place of the request of this count.
    fn place(&mut self, count: usize) -> Option<&mut Option<Request<P>>> {
        let mask = self.ring.len().wrapping_sub(1);
        self.ring.get_mut(count & mask)
    }

    /// Checks that there is room for the blocks of `count` more requests. `is_over` says whether the request of a number
    /// is over.
    ///
    /// # Errors
    /// [`PostReason::NotReclaimed`].
    pub fn check_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        if self.len() + count <= self.max as usize { Ok(()) } else { self.make_room(count, is_over) }
    }

    #[cold]
    fn make_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        self.search(is_over, |_| false);
        if self.len() + count <= self.max as usize { Ok(()) } else { Err(PostReason::NotReclaimed { max: self.max }) }
    }

    /// Adds the blocks of a request that was posted. The device gives it a number. The first one allocates the room for
    /// all.
    pub fn lend(&mut self, number: u64, wr_id: u64, returns: Returns, parts: Parts<P>) {
        let request = Request { number, wr_id, returns, parts };
        match self.place(self.next) {
            Some(place @ None) => *place = Some(request),
            Some(Some(_)) | None => self.grow(request),
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Adds a request for which there is no place.
    #[cold]
    fn grow(&mut self, request: Request<P>) {
        let (first, len) = (self.first, self.len());
        let held = (0..len).map(|ahead| self.place(first.wrapping_add(ahead)).and_then(Option::take));
        let mut ring: Vec<_> = held.collect();
        ring.push(Some(request));
        ring.resize_with((self.max as usize).max(len + 1).next_power_of_two(), || None);
        (self.ring, self.first, self.next) = (ring.into(), 0, len);
    }

    /// Returns the blocks of the first request with the `wr_id` of the completion that is over; `None` if there is none.
    /// Those of unsignaled requests before it that are over return to their pools.
    pub fn reclaim(&mut self, completion: &Completion, is_over: impl Fn(u64) -> bool) -> Option<Parts<P>> {
        let wr_id = completion.wr_id;
        let is_signaled =
            move |request: &Request<P>| request.wr_id == wr_id && request.returns == Returns::ByCompletion;
        let place = self.place(self.first)?;
        // The usual case: completions come in the order of the posts.
        if place.as_ref().is_some_and(|first| is_signaled(first) && is_over(first.number)) {
            let request = place.take();
            self.first = self.first.wrapping_add(1);
            return request.map(|request| request.parts);
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
        let (first, len) = (self.first, self.len());
        for count in (0..len).map(|ahead| first.wrapping_add(ahead)) {
            let Some(Some(request)) = self.place(count) else { break };
            let is_over = is_over(request.number);
            if is_over && is_wanted(request) {
                return self.remove(count);
            }
            if is_over && request.returns != Returns::ByCompletion {
                self.remove(count);
            }
        }
        None
    }

    /// Removes a request. Those before it move on by one place.
    fn remove(&mut self, count: usize) -> Option<Parts<P>> {
        let removed = self.place(count)?.take();
        let mask = self.ring.len().wrapping_sub(1);
        let before = (0..count.wrapping_sub(self.first)).map(|ahead| self.first.wrapping_add(ahead));
        before.rev().for_each(|before| self.ring.swap(before & mask, before.wrapping_add(1) & mask));
        self.first = self.first.wrapping_add(1);
        removed.map(|request| request.parts)
    }

    /// Whether no request has blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }
}

impl<P> fmt::Debug for Lent<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("requests", &self.len()).finish_non_exhaustive()
    }
}
