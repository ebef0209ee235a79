//! Sends of which few are signaled.

use super::{Parts, QueuePair, SendFlags, SendWr, Unposted};

/// Posts the sends of a QP, and makes one in so many of them signaled: each completion costs a poll, often a wake-up too.
///
/// A request of the send queue keeps its slot and its blocks until a completion of the queue passes it, and an unsignaled one that
/// succeeds has none. So the queue, and the pool of the blocks, need room for at least as many sends as the number, and for twice
/// as many if the program is not to wait for the completion. The last send before a wait for all of them is to be signaled; on
/// iWARP each one, because a completion there ends no other request.
///
/// ```
/// # use cmid_proto::datapath::{Block, QueuePair, SendWr, Signaled, Unposted};
/// # fn send<Q: QueuePair>(qp: &mut Q, blocks: [Block<Q::Piece>; 4]) -> Result<(), Unposted<Q::Piece>> {
/// let mut signaled = Signaled::one_in(3); // of a send queue of 6
/// let mut has_signaled = Vec::new();
/// for (block, is_last) in blocks.into_iter().zip([false, false, false, true]) {
///     has_signaled.push(signaled.post(qp, SendWr::send(1, block), is_last)?);
/// }
/// assert_eq!(has_signaled, [false, false, true, true]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Signaled {
    one_in: u32,
    /// The sends since the last one that is signaled.
    unsignaled: u32,
}

impl Signaled {
    /// One send in `one_in` is signaled; each one for 1, and for 0 too.
    #[must_use]
    pub const fn one_in(one_in: u32) -> Self {
        Signaled { one_in, unsignaled: 0 }
    }

    /// Posts a request of blocks, and returns whether it is signaled: if it is to be (`always`), or if those before it were not.
    /// The flag of the request does not count.
    ///
    /// # Errors
    /// As [`QueuePair::post_send_blocks`]. The request is not counted.
    pub fn post<Q: QueuePair, L: Into<Parts<Q::Piece>>>(
        &mut self,
        qp: &mut Q,
        mut request: SendWr<'_, L, Q::Ah>,
        always: bool,
    ) -> Result<bool, Unposted<Q::Piece>> {
        let is_signaled = always || self.unsignaled.saturating_add(1) >= self.one_in;
        request.flags.set(SendFlags::SIGNALED, is_signaled);
        qp.post_send_blocks(request)?;
        self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
        Ok(is_signaled)
    }
}
