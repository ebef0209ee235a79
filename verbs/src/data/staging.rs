//! Lists of work requests in the form of ibv_post_send(3) and ibv_post_recv(3).

use core::iter::repeat_with;
use core::mem::MaybeUninit;
use core::{ptr, slice};

use cmid_proto::Errno;
use cmid_proto::datapath::PostReason;

use crate::data::ranges::EMPTY;
use crate::errno;
use crate::ffi::{c_int, ibv_recv_wr, ibv_send_wr, ibv_sge};

/// The memory for the lists of one work queue: as many requests as the queue holds, linked once, and the ranges of
/// each.
pub(super) struct Staging<W> {
    requests: Box<[W]>,
    sges: Box<[ibv_sge]>,
    max_sge: usize,
    /// The number of requests in the list.
    len: usize,
    /// The request that ends the last list: it is not linked to the next one.
    last: Option<usize>,
}

// SAFETY: its pointers point into itself.
unsafe impl<W> Send for Staging<W> {}
// SAFETY: all its functions take `&mut self`.
unsafe impl<W> Sync for Staging<W> {}

/// The post of a batch ended before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped {
    /// The number of requests before it, which are posted.
    pub(super) posted: usize,
    pub(super) reason: PostReason,
}

impl From<PostReason> for Stopped {
    fn from(reason: PostReason) -> Self {
        Stopped { posted: 0, reason }
    }
}

impl Stopped {
    /// Of the `count` requests of the batch the last `withdrawn` are not posted.
    pub(super) fn before(self, withdrawn: usize, count: usize) -> Result<usize, Stopped> {
        if withdrawn == 0 { Ok(count) } else { Err(Stopped { posted: count.saturating_sub(withdrawn), ..self }) }
    }
}

/// A request in a list.
pub(super) trait Request: Sized {
    const ZERO: Self;

    fn next(&mut self) -> &mut *mut Self;

    fn sg_list(&mut self) -> &mut *mut ibv_sge;
}

impl Request for ibv_send_wr {
    // SAFETY: zeros are a value of it: integers, null pointers, and unions of such.
    const ZERO: Self = unsafe { MaybeUninit::zeroed().assume_init() };

    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }

    fn sg_list(&mut self) -> &mut *mut ibv_sge {
        &mut self.sg_list
    }
}

impl Request for ibv_recv_wr {
    const ZERO: Self = ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };

    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }

    fn sg_list(&mut self) -> &mut *mut ibv_sge {
        &mut self.sg_list
    }
}

impl Staging<ibv_recv_wr> {
    /// The requests of the list with their ranges.
    pub(super) fn receives(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = (&mut ibv_recv_wr, &[ibv_sge])> + ExactSizeIterator {
        let sges = self.sges.chunks(self.max_sge);
        self.requests.iter_mut().zip(sges).take(self.len).map(|(request, sges)| {
            let len = usize::try_from(request.num_sge).unwrap_or(0);
            (request, sges.get(..len).unwrap_or_default())
        })
    }
}

impl<W: Request> Staging<W> {
    /// Creates the memory for a queue of `capacity` requests of at most `max_sge` ranges each.
    pub(super) fn new(capacity: u32, max_sge: u32) -> Box<Self> {
        let (capacity, max_sge) = (capacity as usize, max_sge.max(1) as usize);
        let requests = repeat_with(|| W::ZERO).take(capacity).collect();
        let sges = vec![EMPTY; capacity.saturating_mul(max_sge)].into_boxed_slice();
        let mut staging = Box::new(Staging { requests, sges, max_sge, len: 0, last: None });
        let (first_request, first_sge) = (staging.requests.as_mut_ptr(), staging.sges.as_mut_ptr());
        for (at, request) in staging.requests.iter_mut().enumerate() {
            *request.next() = first_request.wrapping_add(at + 1);
            *request.sg_list() = first_sge.wrapping_add(at * max_sge);
        }
        staging
    }

    /// Begins a list. [`Staging::end`] ends it.
    pub(super) fn begin(&mut self) -> List<'_, W> {
        self.len = 0;
        let first = self.requests.as_mut_ptr();
        if let Some(last) = self.last.take() {
            if let Some(request) = self.requests.get_mut(last) {
                *request.next() = first.wrapping_add(last + 1);
            }
        }
        let (capacity, max_sge) = (self.requests.len(), self.max_sge);
        List { capacity, requests: self.requests.iter_mut(), sges: self.sges.as_mut_ptr(), max_sge }
    }

    /// Sets the length of the list ([`List::len`]).
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Ends the list after `len` requests ([`List::len`]), and returns the first one; null without requests. It is
    /// valid until `self` is used again.
    pub(super) fn end(&mut self, len: usize) -> *mut W {
        self.len = len;
        let Some(last) = self.len.checked_sub(1) else { return ptr::null_mut() };
        if let Some(request) = self.requests.get_mut(last) {
            *request.next() = ptr::null_mut();
            self.last = Some(last);
        }
        self.requests.as_mut_ptr()
    }

    /// Interprets the answer of a provider to the list. `bad` is the first request that it has not posted; null before
    /// the call.
    ///
    /// # Errors
    /// The list is not posted, or only in part: libsiw then returns 0. If `bad` is no request of the list, none is
    /// known to be posted.
    pub(super) fn posted(&self, returned: c_int, bad: *const W) -> Result<usize, Stopped> {
        let errno = match answer(returned, bad) {
            Ok(()) => return Ok(self.len),
            Err(errno) => errno,
        };
        let before = self.requests.iter().take(self.len).position(|request| ptr::eq(request, bad));
        Err(Stopped { posted: before.unwrap_or(0), reason: PostReason::Device(errno) })
    }
}

/// Interprets the answer of a provider to one request; as [`Staging::posted`].
pub(super) fn answer<W>(returned: c_int, bad: *const W) -> Result<(), Errno> {
    errno::of_posted(returned)?;
    if bad.is_null() { Ok(()) } else { Err(partial()) }
}

/// A list under construction: the places that are left.
pub(super) struct List<'a, W> {
    capacity: usize,
    requests: slice::IterMut<'a, W>,
    /// The ranges of the next request, borrowed as long as the requests. It is a pointer, so that one comparison checks
    /// the end of both.
    sges: *mut ibv_sge,
    max_sge: usize,
}

impl<'a, W> List<'a, W> {
    /// Adds a request with these ranges. The caller writes its other fields, and leaves the links.
    ///
    /// # Errors
    /// If the list is as long as the queue, and for more ranges than `max_sge`.
    pub(super) fn add(&mut self, sges: &[ibv_sge]) -> Result<&'a mut W, PostReason> {
        if sges.len() > self.max_sge {
            return Err(PostReason::TooManyRanges { ranges: sges.len() as u32, max: self.max_sge as u32 });
        }
        let Some(request) = self.requests.next() else { return Err(full(self.capacity)) };
        // SAFETY: each request has `max_sge` places (`Staging::new`), borrowed by `&mut` (`Staging::begin`), and both
        // advance together. `sges` does not overlap them, because it is a shared borrow.
        unsafe {
            ptr::copy_nonoverlapping(sges.as_ptr(), self.sges, sges.len());
            self.sges = self.sges.add(self.max_sge);
        }
        Ok(request)
    }

    /// Adds a request with one range.
    ///
    /// # Errors
    /// If the list is as long as the queue.
    pub(super) fn add_one(&mut self, sge: ibv_sge) -> Result<&'a mut W, PostReason> {
        let Some(request) = self.requests.next() else { return Err(full(self.capacity)) };
        // SAFETY: as in `add`; `max_sge` is at least 1.
        unsafe {
            *self.sges = sge;
            self.sges = self.sges.add(self.max_sge);
        }
        Ok(request)
    }

    /// The number of requests in it.
    pub(super) fn len(&self) -> usize {
        self.capacity - self.requests.len()
    }
}

/// Returns the reason of a full list.
#[cold]
fn full(capacity: usize) -> PostReason {
    PostReason::QueueFull { max: capacity as u32 }
}

/// Returns the errno for a list that is posted only in part, although no error is returned.
#[cold]
fn partial() -> Errno {
    Errno::ENOMEM
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(addr: u64) -> ibv_sge {
        ibv_sge { addr, length: 1, lkey: 7 }
    }

    /// Reads a list as a provider does: the numbers of its requests, and the addresses of their ranges.
    fn read(mut request: *const ibv_recv_wr) -> Vec<(u64, Vec<u64>)> {
        let mut read = Vec::new();
        while !request.is_null() {
            // SAFETY: the request is in a list that is alive, with its ranges.
            let (one, sges) = unsafe {
                let one = &*request;
                (one, core::slice::from_raw_parts(one.sg_list, one.num_sge as usize))
            };
            read.push((one.wr_id, sges.iter().map(|sge| sge.addr).collect()));
            request = one.next;
        }
        read
    }

    fn add(list: &mut List<'_, ibv_recv_wr>, wr_id: u64, sges: &[ibv_sge]) -> Result<(), PostReason> {
        let request = list.add(sges)?;
        (request.wr_id, request.num_sge) = (wr_id, sges.len() as i32);
        Ok(())
    }

    #[test]
    fn lists_of_any_length_follow_each_other() {
        let mut staging = Staging::<ibv_recv_wr>::new(3, 2);
        for len in [1, 3, 2, 3, 0, 3] {
            let mut list = staging.begin();
            for number in 0..len {
                add(&mut list, number, &[sge(10 * number), sge(10 * number + 1)]).expect("room");
            }
            let expected: Vec<_> = (0..len).map(|number| (number, vec![10 * number, 10 * number + 1])).collect();
            assert_eq!(list.len() as u64, len);
            if len == 3 {
                assert_eq!(add(&mut list, 3, &[]), Err(PostReason::QueueFull { max: 3 }));
            }
            assert_eq!(read(staging.end(len as usize)), expected);
        }
        let (third, other) = (&raw const staging.requests[2], &raw const *Box::new(ibv_recv_wr::ZERO));
        let failed = |posted, errno| Err(Stopped { posted, reason: PostReason::Device(errno) });
        assert_eq!(staging.posted(0, ptr::null()), Ok(3));
        assert_eq!(staging.posted(0, third), failed(2, Errno::ENOMEM), "a partial post of libsiw");
        assert_eq!(staging.posted(22, third), failed(2, Errno::EINVAL));
        assert_eq!(staging.posted(-22, ptr::null()), failed(0, Errno::EINVAL), "nothing is known");
        assert_eq!(staging.posted(0, other), failed(0, Errno::ENOMEM));
        assert_eq!((answer(0, third), answer(0, ptr::null::<ibv_recv_wr>())), (Err(Errno::ENOMEM), Ok(())));
    }

    #[test]
    fn a_request_has_at_most_the_ranges_of_the_queue() {
        let mut staging = Staging::<ibv_recv_wr>::new(1, 1);
        let refused = Err(PostReason::TooManyRanges { ranges: 2, max: 1 });
        assert_eq!(add(&mut staging.begin(), 1, &[sge(1), sge(2)]), refused);
        let request = staging.begin().add_one(sge(3)).expect("room");
        (request.wr_id, request.num_sge) = (4, 1);
        assert_eq!(read(staging.end(1)), [(4, vec![3])]);
    }
}
