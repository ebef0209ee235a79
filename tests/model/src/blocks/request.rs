//! The requests of the program, one by one and in batches.

use std::panic::resume_unwind;

use cmid_proto::datapath::{Block, Part, Parts, Piece, Remote, SendOp, SendWr};

use super::ledger::{Kind, Posted};

/// What becomes the memory of a request, or panics instead.
pub(super) struct Given<P: Piece> {
    pub(super) parts: Parts<P>,
    pub(super) panics: bool,
}

impl<P: Piece> From<Given<P>> for Parts<P> {
    fn from(Given { parts, panics }: Given<P>) -> Self {
        if panics {
            resume_unwind(Box::new(()));
        }
        parts
    }
}

/// A batch that says of its length what it likes, and panics after some of its requests.
pub(super) struct Batch<I> {
    pub(super) requests: I,
    pub(super) hint: Option<usize>,
    pub(super) until_panic: usize,
}

impl<I: Iterator> Iterator for Batch<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        match self.until_panic.checked_sub(1) {
            Some(left) => self.until_panic = left,
            None => resume_unwind(Box::new(())),
        }
        self.requests.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.hint)
    }
}

/// A request that is to be posted.
pub(super) struct Planned<P: Piece> {
    pub(super) posted: Posted,
    pub(super) remote: Remote,
    pub(super) given: Given<P>,
    pub(super) message: Vec<u8>,
}

/// The addresses of blocks, also of shared ones.
pub(super) fn addresses<P: Piece>(parts: &[Part<P>]) -> Vec<u64> {
    parts.iter().map(|part| address(part.block())).collect()
}

pub(super) fn address<P: Piece>(block: &Block<P>) -> u64 {
    block.remote(0).addr
}

pub(super) fn bytes<P: Piece>(parts: &[Part<P>]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

impl<P: Piece> Planned<P> {
    pub(super) fn into_wr<'a, A: 'a>(self) -> SendWr<'a, Given<P>, A> {
        let Planned { posted: Posted { wr_id, kind, is_signaled, .. }, remote, given, .. } = self;
        let op = match kind {
            Kind::Send | Kind::Receive => SendOp::Send,
            Kind::Write => SendOp::Write(remote),
            Kind::Read => SendOp::Read(remote),
        };
        let wr = SendWr::new(wr_id, op, given);
        if is_signaled { wr } else { wr.unsignaled() }
    }
}
