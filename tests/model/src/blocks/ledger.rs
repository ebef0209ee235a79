//! The requests of an end that have blocks, or had.

use cmid_proto::datapath::Completion;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Receive,
    Send,
    Write,
    Read,
}

/// A request that was posted.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    pub(super) kind: Kind,
    pub(super) is_signaled: bool,
    /// The addresses of its blocks.
    pub(super) blocks: Vec<u64>,
    is_over: bool,
}

impl Posted {
    pub(super) fn new(wr_id: u64, kind: Kind, is_signaled: bool, blocks: Vec<u64>) -> Self {
        Posted { wr_id, kind, is_signaled, blocks, is_over: false }
    }
}

/// The requests of both queues whose blocks have not come back, in the order of the posts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    queues: [Vec<Posted>; 2],
}

impl Ledger {
    pub(super) fn post(&mut self, posted: Posted) {
        self.queues[usize::from(posted.kind == Kind::Receive)].push(posted);
    }

    /// A polled completion: its request is over, and those before it. Returns what the request does.
    pub(super) fn complete(&mut self, completion: &Completion) -> Kind {
        let queue = &mut self.queues[usize::from(completion.opcode.is_recv())];
        let is_it = |posted: &Posted| {
            !posted.is_over && posted.wr_id == completion.wr_id && (posted.is_signaled || !completion.is_success())
        };
        let at = queue.iter().position(is_it).unwrap_or_else(|| panic!("{completion:?} of no request in {queue:?}"));
        queue[..=at].iter_mut().for_each(|posted| posted.is_over = true);
        queue[at].kind
    }

    /// A reclaim by a completion, which may be made up, has returned these blocks.
    pub(super) fn reclaim(&mut self, completion: &Completion, blocks: Option<&[u64]>) {
        let queue = &mut self.queues[usize::from(completion.opcode.is_recv())];
        let is_asked_for = |posted: &Posted| {
            posted.is_over && posted.wr_id == completion.wr_id && (posted.is_signaled || !completion.is_success())
        };
        let mut asked_for = (0..queue.len()).filter(|&at| is_asked_for(&queue[at]));
        // The blocks of an unsignaled request may have returned to their pools.
        let is_it = |at: &usize| queue[*at].is_signaled || blocks == Some(&queue[*at].blocks);
        let found = asked_for.find(is_it);
        let expected = found.map(|at| queue.remove(at).blocks);
        assert_eq!(blocks, expected.as_deref(), "{completion:?} in {queue:?}");
    }

    /// Whether a request has a block: it is in flight, or its blocks have not been reclaimed.
    pub(super) fn has(&self, block: u64) -> bool {
        let has = |posted: &Posted| (posted.is_signaled || !posted.is_over) && posted.blocks.contains(&block);
        self.queues.iter().flatten().any(has)
    }

    /// The number of receives in flight.
    pub(super) fn receives(&self) -> usize {
        self.queues[1].iter().filter(|posted| !posted.is_over).count()
    }
}
