//! A program that does with blocks what safe code may: it drops and forgets blocks and handles, gives them to other
//! threads, makes up completions, and panics in the middle of a post. It runs on any device: on the simulator from the
//! fuzzer's bytes, and on a real device under AddressSanitizer (`tests/kernel`).
//!
//! A block has one owner. As long as the program has it, nobody else writes to it; as long as a work request has it,
//! nobody gets it, by a reclaim or from its pool. A message has the bytes of its blocks at the post. A reclaim returns
//! the blocks of the request that is asked for, if it is over. What is refused comes back. When all QPs are gone and
//! their CQs were polled, each block that was not forgotten is in its pool.

mod ledger;
mod request;
#[cfg(feature = "devices")]
mod simulated;

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use cmid_proto::datapath::{Block, Completion, Part, Parts, Pool, WcOpcode, WcStatus, prelude::*};

use crate::input::Input;
use crate::say::say;
use ledger::{Kind, Ledger, Posted};
use request::{Batch, Given, Planned, address, addresses, bytes};
#[cfg(feature = "devices")]
pub use simulated::run;

/// The length of a block, more than is sent inline.
pub const LEN: usize = 64;
/// The number of blocks of each pool.
pub const BLOCKS: usize = 6;
/// The byte of the memory that a peer reads: the first [`LEN`] bytes of [`End::memory`]. It writes to the others.
pub const READ: u8 = 0xee;

/// The `wr_id` of many requests.
const SAME: u64 = 0;

/// One end of a connection.
#[derive(Debug)]
pub struct End<Q: QueuePair, C> {
    /// The QP, which reports to the CQ.
    pub qp: Q,
    /// The CQ of sends and of receives.
    pub cq: C,
    /// [`BLOCKS`] blocks of [`LEN`] bytes, on the PD of the QP.
    pub pool: Pool<Q::Piece>,
    /// `2 * LEN` bytes that the peer may read and write.
    pub memory: Q::Mr,
}

/// What is under the ends.
pub trait Ground {
    /// Lets the device execute what was posted.
    fn wait(&mut self);
    /// Takes the QP of an end from its id. It executes nothing any more.
    fn detach(&mut self, end: usize);
}

/// A block of the program, filled with one byte.
struct Owned<B> {
    block: B,
    fill: u8,
}

/// An end, until its QP and its CQ are gone.
struct Side<Q: QueuePair, C> {
    qp: Option<Q>,
    cq: Option<C>,
    pool: Pool<Q::Piece>,
    memory: Q::Mr,
    ledger: Ledger,
    /// What was sent and has not been received, in order.
    under_way: VecDeque<Vec<u8>>,
}

/// What the program has forgotten: it is neither used nor dropped, until all has been checked. A leak would be reported.
struct Forgotten<Q: QueuePair> {
    blocks: Vec<Block<Q::Piece>>,
    shared: Vec<Arc<Block<Q::Piece>>>,
    /// With the blocks of their requests.
    qps: [Option<Q>; 2],
}

impl<Q: QueuePair, C: CompletionQueue> Side<Q, C> {
    /// Polls until nothing is left in the CQ. Then the blocks of a QP that is gone come back.
    fn empty(&mut self) {
        while let Some(cq) = &mut self.cq {
            if cq.poll(&mut [Completion::default(); 4]).expect("a poll") == 0 {
                break;
            }
        }
    }
}

struct Program<G, Q: QueuePair, C> {
    ground: G,
    sides: [Side<Q, C>; 2],
    /// The end of each block that was taken, by address.
    homes: BTreeMap<u64, usize>,
    owned: Vec<Owned<Block<Q::Piece>>>,
    /// Blocks for several requests.
    shared: Vec<Owned<Arc<Block<Q::Piece>>>>,
    forgotten: Forgotten<Q>,
    fill: u8,
    wr_id: u64,
}

/// Runs the input on two connected ends.
pub fn adversary<G: Ground, Q: QueuePair<Ah: 'static>, C: CompletionQueue>(
    data: &[u8],
    ground: G,
    ends: [End<Q, C>; 2],
) {
    let mut input = Input::new(data);
    let sides = ends.map(|End { qp, cq, pool, memory }| {
        let (ledger, under_way) = (Ledger::default(), VecDeque::new());
        Side { qp: Some(qp), cq: Some(cq), pool, memory, ledger, under_way }
    });
    let (homes, owned, shared) = (BTreeMap::new(), Vec::new(), Vec::new());
    let forgotten = Forgotten { blocks: Vec::new(), shared: Vec::new(), qps: [None, None] };
    let mut program = Program { ground, sides, homes, owned, shared, forgotten, fill: 0, wr_id: 0 };
    while !input.is_over() {
        let at = input.below(2);
        program.step(at, &mut input);
        program.look();
    }
    program.rest();
}

impl<G: Ground, Q: QueuePair<Ah: 'static>, C: CompletionQueue> Program<G, Q, C> {
    fn step(&mut self, at: usize, input: &mut Input<'_>) {
        match input.below(32) {
            0..=6 => self.take(at),
            7..=10 => self.post(at, true, input),
            11..=15 => self.post(at, false, input),
            16..=18 => self.post_batch(at, input),
            19..=24 => self.poll(at, input),
            25 => self.make_up(at, input),
            26 => self.share(input),
            27 => self.lose(input),
            28 => self.on_threads(at, input),
            29 if input.once_in(8) => self.end(at, input.once_in(4)),
            29 if input.once_in(8) => self.sides[at].cq = None,
            _ => self.ground.wait(),
        }
    }

    fn own(&mut self, mut block: Block<Q::Piece>) {
        self.fill = self.fill.wrapping_add(1);
        block.fill(self.fill);
        self.owned.push(Owned { block, fill: self.fill });
    }

    fn take(&mut self, at: usize) {
        let Some(block) = self.sides[at].pool.take() else { return };
        let taken = address(&block);
        say(|| format!("takes {taken:x} from pool {at}"));
        assert!(!self.sides[at].ledger.has(taken), "a request has {taken:x}, and the pool hands it out");
        let owned = self.owned.iter().map(|owned| &owned.block).chain(&self.forgotten.blocks);
        let shared = self.shared.iter().map(|owned| &owned.block).chain(&self.forgotten.shared);
        let all = owned.chain(shared.map(|block| &**block)).map(address);
        assert_eq!(all.filter(|other| *other == taken).count(), 0, "the program has {taken:x}");
        self.homes.insert(taken, at);
        self.own(block);
    }

    /// The memory of a request: mostly one block of this end or a part of it, or two parts, a shared block, or nothing. A
    /// receive of less than a block fails if the message is longer. `None` without a block.
    fn parts(&mut self, at: usize, is_receive: bool, input: &mut Input<'_>) -> Option<Parts<Q::Piece>> {
        let kind = input.below(32);
        if let (0, Some(Owned { block, .. })) = (kind, self.shared.get(input.below(self.shared.len()))) {
            let block = Arc::clone(block);
            return Some(if input.once_in(2) { block.into() } else { Part::shared(block, 3..LEN - 5).into() });
        }
        let (is_foreign, count) = (kind == 1, [1, 1, 2, 0].get(kind).copied().unwrap_or(1));
        let is_part = kind < if is_receive { 4 } else { 16 };
        let mut parts = Vec::new();
        for _ in 0..count {
            let is_here = |owned: &Owned<Block<Q::Piece>>| is_foreign || self.homes[&address(&owned.block)] == at;
            let found = self.owned.iter().position(is_here)?;
            let Owned { block, .. } = self.owned.swap_remove(found);
            let beyond = if input.once_in(32) { LEN } else { 0 };
            parts.push(if is_part { block.part(8 + beyond..24 + beyond) } else { block.into() });
        }
        Some(match parts.pop() {
            Some(one) if parts.is_empty() => one.into(),
            last => parts.into_iter().chain(last).collect(),
        })
    }

    /// A request of this end. A message is sent only if the peer has a receive for it.
    fn plan(&mut self, at: usize, is_receive: bool, ahead: usize, input: &mut Input<'_>) -> Option<Planned<Q::Piece>> {
        self.sides[at].qp.as_ref()?;
        let parts = self.parts(at, is_receive, input)?;
        let peer = &self.sides[1 - at];
        let has_receive = peer.ledger.receives() > self.sides[at].under_way.len() + ahead;
        let kind = match input.below(4) {
            _ if is_receive => Kind::Receive,
            0 | 1 if has_receive => Kind::Send,
            2 => Kind::Read,
            _ => Kind::Write,
        };
        let remote = peer.memory.remote(if kind == Kind::Read { 0 } else { LEN });
        let is_signaled = is_receive || !input.once_in(4);
        self.wr_id += 1;
        let wr_id = if is_signaled && input.once_in(4) { SAME } else { self.wr_id };
        let posted = Posted::new(wr_id, kind, is_signaled, addresses(&parts));
        let message = bytes(&parts);
        Some(Planned { posted, remote, message, given: Given { parts, panics: input.once_in(32) } })
    }

    /// A request is posted.
    fn note(&mut self, at: usize, posted: Posted, message: Vec<u8>) {
        say(|| format!("{at} posts {posted:?}"));
        if posted.kind == Kind::Send {
            self.sides[at].under_way.push_back(message);
        }
        assert!(!posted.blocks.iter().any(|block| self.homes[block] != at), "a block of another PD is posted");
        self.sides[at].ledger.post(posted);
    }

    /// Blocks come back to the program.
    fn get_back(&mut self, parts: Parts<Q::Piece>) {
        parts.into_blocks().for_each(|block| self.own(block));
    }

    fn post(&mut self, at: usize, is_receive: bool, input: &mut Input<'_>) {
        let Some(mut planned) = self.plan(at, is_receive, 0, input) else { return };
        let Some(qp) = &mut self.sides[at].qp else { return };
        let message = take(&mut planned.message);
        let Posted { wr_id, kind, is_signaled, ref blocks, .. } = planned.posted;
        let posted = Posted::new(wr_id, kind, is_signaled, blocks.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if is_receive { qp.post_recv_blocks(wr_id, planned.given) } else { qp.post_send_blocks(planned.into_wr()) }
        }));
        match ended {
            Ok(Ok(())) => self.note(at, posted, message),
            Ok(Err(refused)) => {
                say(|| format!("{at} may not post {posted:?}: {}", refused.error));
                let given = refused.given.expect("the device refuses nothing");
                assert_eq!(addresses(&given), posted.blocks);
                self.get_back(given);
            }
            Err(_) => say(|| format!("{at} panics instead of {posted:?}")),
        }
    }

    fn post_batch(&mut self, at: usize, input: &mut Input<'_>) {
        let (is_receive, mut all, mut ahead) = (input.once_in(2), Vec::new(), 0);
        for _ in 0..input.below(4) {
            let Some(planned) = self.plan(at, is_receive, ahead, input) else { break };
            ahead += usize::from(planned.posted.kind == Kind::Send);
            all.push(planned);
        }
        let copy = |planned: &mut Planned<Q::Piece>| {
            let Posted { wr_id, kind, is_signaled, ref blocks, .. } = planned.posted;
            (Posted::new(wr_id, kind, is_signaled, blocks.clone()), take(&mut planned.message))
        };
        let noted: Vec<_> = all.iter_mut().map(copy).collect();
        let hint = [None, Some(0), Some(all.len()), Some(100)][input.below(4)];
        let until_panic = if input.once_in(8) { input.below(4) } else { usize::MAX };
        let batch = Batch { requests: all.into_iter(), hint, until_panic };
        let Some(qp) = &mut self.sides[at].qp else { return };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if is_receive {
                qp.post_recvs_blocks(batch.map(|planned| (planned.posted.wr_id, planned.given)))
            } else {
                qp.post_sends_blocks(batch.map(Planned::into_wr))
            }
        }));
        let (posted, given) = match ended {
            Ok(Ok(posted)) => (posted, Vec::new()),
            Ok(Err(refused)) => (refused.error.posted, refused.given),
            Err(_) => return say(|| format!("{at} panics in a batch")),
        };
        assert_eq!(posted + given.len(), noted.len(), "each request is posted or comes back");
        for (request, (one, message)) in noted.into_iter().enumerate() {
            match request.checked_sub(posted).and_then(|back| given.get(back)) {
                Some(back) => assert_eq!(addresses(back), one.blocks),
                None => self.note(at, one, message),
            }
        }
        given.into_iter().for_each(|back| self.get_back(back));
    }

    fn poll(&mut self, at: usize, input: &mut Input<'_>) {
        let (mut room, count) = ([Completion::default(); 2], 1 + input.below(2));
        let Some(cq) = &mut self.sides[at].cq else { return };
        let polled = cq.poll(&mut room[..count]).expect("a poll");
        self.polled(at, &room[..polled], input);
    }

    fn polled(&mut self, at: usize, completions: &[Completion], input: &mut Input<'_>) {
        if self.sides[at].qp.is_none() {
            return;
        }
        for completion in completions {
            say(|| format!("{at} polls {completion:?}"));
            let kind = self.sides[at].ledger.complete(completion);
            let is_received = kind == Kind::Receive && completion.is_success();
            let message = if is_received { self.sides[1 - at].under_way.pop_front() } else { None };
            if is_received {
                let len = message.as_ref().map(Vec::len);
                assert_eq!(Some(completion.byte_len as usize), len, "the length of the message");
            }
            // The program may lose a completion.
            if !input.once_in(8) {
                let read = (kind == Kind::Read && completion.is_success()).then(|| vec![READ; LEN]);
                self.reclaim(at, completion, message.or(read));
            }
        }
    }

    /// Reclaims the blocks of a request, in which these bytes have come.
    fn reclaim(&mut self, at: usize, completion: &Completion, came: Option<Vec<u8>>) {
        let Some(qp) = &mut self.sides[at].qp else { return };
        let parts = qp.reclaim(completion);
        let blocks = parts.as_deref().map(addresses);
        say(|| format!("{at} reclaims {blocks:x?}"));
        self.sides[at].ledger.reclaim(completion, blocks.as_deref());
        let Some(parts) = parts else { return };
        if let Some(came) = came.filter(|_| completion.wr_id != SAME) {
            let here = bytes(&parts);
            let count = here.len().min(came.len());
            assert_eq!(here[..count], came[..count], "what has come");
        }
        self.get_back(parts);
    }

    /// Reclaims by a completion that was not polled now.
    fn make_up(&mut self, at: usize, input: &mut Input<'_>) {
        let wr_id = if input.once_in(2) { SAME } else { self.wr_id.saturating_sub(input.below(8) as u64) };
        let opcode = [WcOpcode::SEND, WcOpcode::RECV, WcOpcode::RDMA_READ][input.below(3)];
        let status = [WcStatus::SUCCESS, WcStatus::WR_FLUSH_ERR][input.below(2)];
        self.reclaim(at, &Completion { wr_id, opcode, status, ..Completion::default() }, None);
    }

    fn share(&mut self, input: &mut Input<'_>) {
        if !self.owned.is_empty() {
            let Owned { block, fill } = self.owned.swap_remove(input.below(self.owned.len()));
            self.shared.push(Owned { block: Arc::new(block), fill });
        }
    }

    /// Drops or forgets a block.
    fn lose(&mut self, input: &mut Input<'_>) {
        let (is_shared, is_forgotten) = (input.once_in(2), input.once_in(4));
        if is_shared && !self.shared.is_empty() {
            let Owned { block, .. } = self.shared.swap_remove(input.below(self.shared.len()));
            say(|| format!("loses {:x}, which is shared, forgotten: {is_forgotten}", address(&block)));
            self.forgotten.shared.extend(Some(block).filter(|_| is_forgotten));
        } else if !self.owned.is_empty() {
            let Owned { block, .. } = self.owned.swap_remove(input.below(self.owned.len()));
            say(|| format!("loses {:x}, forgotten: {is_forgotten}", address(&block)));
            self.forgotten.blocks.extend(Some(block).filter(|_| is_forgotten));
        }
    }

    /// One thread posts a receive, one drops blocks, and this one polls the other end.
    fn on_threads(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(Planned { posted, given, .. }) = self.plan(at, true, 0, input) else { return };
        let dropped = self.owned.split_off(self.owned.len().saturating_sub(2));
        let mut room = [Completion::default(); 2];
        let [client, server] = &mut self.sides;
        let (here, there) = if at == 0 { (client, server) } else { (server, client) };
        let (Some(qp), parts, wr_id) = (&mut here.qp, given.parts, posted.wr_id) else { return };
        let (ended, polled) = thread::scope(|scope| {
            let post = scope.spawn(move || qp.post_recv_blocks(wr_id, parts));
            scope.spawn(move || dropped.into_iter().for_each(|owned| drop(owned.block)));
            let polled = there.cq.as_mut().map_or(Ok(0), |cq| cq.poll(&mut room));
            (post.join().expect("no panic"), polled.expect("a poll"))
        });
        match ended {
            Ok(()) => self.note(at, posted, Vec::new()),
            Err(refused) => self.get_back(refused.given.expect("the device refuses nothing")),
        }
        self.polled(1 - at, &room[..polled], input);
    }

    /// The QP of an end goes, or its handle is forgotten.
    fn end(&mut self, at: usize, is_forgotten: bool) {
        let side = &mut self.sides[at];
        let Some(qp) = side.qp.take() else { return };
        say(|| format!("the QP of {at} goes, forgotten: {is_forgotten}"));
        self.ground.detach(at);
        if is_forgotten {
            self.forgotten.qps[at] = Some(qp);
        } else {
            drop(qp);
            side.empty();
            side.ledger = Ledger::default();
        }
    }

    /// Nobody else has written to the blocks of the program.
    fn look(&self) {
        for Owned { block, fill } in &self.owned {
            assert!(block.iter().all(|byte| byte == fill), "{:x} is not what the program has written", address(block));
        }
        for Owned { block, fill } in &self.shared {
            assert!(block.iter().all(|byte| byte == fill), "{:x} is not what the program has written", address(block));
        }
    }

    /// Everything ends.
    fn rest(mut self) {
        (0..2).for_each(|at| self.end(at, false));
        self.owned.clear();
        self.shared.clear();
        let Program { mut sides, homes, forgotten: Forgotten { blocks, shared, qps }, .. } = self;
        let all = || blocks.iter().chain(shared.iter().map(|block| &**block));
        for (at, side) in sides.iter().enumerate().filter(|(at, _)| qps[*at].is_none()) {
            let forgotten = all().filter(|block| homes[&address(block)] == at).count();
            assert_eq!(side.pool.available() + forgotten, BLOCKS, "free blocks, and forgotten ones");
        }
        drop((blocks, shared, qps));
        for side in &mut sides {
            side.empty();
            assert_eq!(side.pool.available(), BLOCKS, "free blocks");
        }
    }
}
