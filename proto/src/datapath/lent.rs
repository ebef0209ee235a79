//! The blocks that the work requests of one queue have.

use alloc::collections::VecDeque;
use core::fmt;

use super::{Completion, Parts, PostReason};

/// The blocks that the work requests of one queue have, in the order of the posts. For devices: the handle of a QP has
/// one for each of its queues, the handle of an SRQ has one.
///
/// A request is over when it is no longer in flight: its completion was polled, or for an unsignaled one that of a later
/// request. The device knows it by the number that it gave the request.
pub struct Lent<P> {
    requests: VecDeque<Request<P>>,
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
    pub const fn new(max: u32) -> Self {
        Lent { requests: VecDeque::new(), max }
    }

    /// Checks that there is room for the blocks of `count` more requests. `is_over` says whether the request of a number
    /// is over.
    ///
    /// # Errors
    /// [`PostReason::NotReclaimed`].
    pub fn check_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        if self.requests.len() + count <= self.max as usize { Ok(()) } else { self.make_room(count, is_over) }
    }

    #[cold]
    fn make_room(&mut self, count: usize, is_over: impl Fn(u64) -> bool) -> Result<(), PostReason> {
        self.requests.retain(|request| request.returns == Returns::ByCompletion || !is_over(request.number));
        if self.requests.len() + count > self.max as usize {
            return Err(PostReason::NotReclaimed { max: self.max });
        }
        Ok(())
    }

    /// Adds the blocks of a request that was posted. The device gives it a number. The first one allocates the room for
    /// all.
    pub fn lend(&mut self, number: u64, wr_id: u64, returns: Returns, parts: Parts<P>) {
        if self.requests.len() == self.requests.capacity() {
            self.allocate();
        }
        self.requests.push_back(Request { number, wr_id, returns, parts });
    }

    #[cold]
    fn allocate(&mut self) {
        self.requests.reserve_exact((self.max as usize).saturating_sub(self.requests.len()));
    }

    /// Returns the blocks of the first request with the `wr_id` of the completion that is over; `None` if there is none.
    /// Those of unsignaled requests before it that are over return to their pools.
    pub fn reclaim(&mut self, completion: &Completion, is_over: impl Fn(u64) -> bool) -> Option<Parts<P>> {
        let first = self.requests.front()?;
        // The usual case: completions come in the order of the posts.
        if first.wr_id == completion.wr_id && first.returns == Returns::ByCompletion && is_over(first.number) {
            return self.requests.pop_front().map(|request| request.parts);
        }
        self.search(completion, is_over)
    }

    #[cold]
    fn search(&mut self, completion: &Completion, is_over: impl Fn(u64) -> bool) -> Option<Parts<P>> {
        let (wr_id, has_failed) = (completion.wr_id, !completion.is_success());
        let mut at = 0;
        while let Some(Request { number, wr_id: other, returns, .. }) = self.requests.get(at) {
            let is_over = is_over(*number);
            // A success is never that of an unsignaled request.
            let may_be = *returns == Returns::ByCompletion || has_failed && *returns == Returns::OnFailure;
            if is_over && *other == wr_id && may_be {
                return self.requests.remove(at).map(|request| request.parts);
            }
            if is_over && *returns != Returns::ByCompletion {
                self.requests.remove(at);
            } else {
                at += 1;
            }
        }
        None
    }

    /// Whether no request has blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl<P> fmt::Debug for Lent<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("requests", &self.requests.len()).finish_non_exhaustive()
    }
}
