//! The machine: its state, its inputs and its outputs.

use std::collections::VecDeque;
use std::time::Duration;

use super::log::{Index, Log, Position, Record, RequestId, Term};
use super::message::{Frame, Message};
use super::progress::Progress;

/// The number of a replica, from 0 on.
pub type ReplicaId = usize;

/// The parameters of a machine. Times are relative to any fixed time.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of this replica.
    pub id: ReplicaId,
    /// The number of replicas.
    pub members: usize,
    /// A replica without messages of a leader starts an election after this time to twice this time.
    pub election_timeout: Duration,
    /// The time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// The length in bytes of the region at each replica that a leader writes frames into.
    pub region: u32,
    /// The maximum number of frames that a replica has not read.
    pub frames: usize,
    /// The maximum number of bytes of a frame. One record always fits.
    pub frame: usize,
    /// A leader accepts no record while this number of records is not committed.
    pub uncommitted: u64,
    /// The seed of the random part of election timeouts.
    pub seed: u64,
}

/// The state of a replica that must survive a restart, besides its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ballot {
    /// The term.
    pub term: Term,
    /// The replica that it has voted for in this term.
    pub vote: Option<ReplicaId>,
}

/// Data to store as one transaction. Batches are stored in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of the batch; the first one has 1.
    pub number: u64,
    /// The ballot to replace the stored one.
    pub ballot: Option<Ballot>,
    /// The index of the first of `records`. If there are records, the stored records from this index on are removed
    /// first.
    pub from: Index,
    /// Records.
    pub records: Vec<Record>,
}

/// An action of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store a batch, and call [`Machine::stored`] when it is on the disk.
    Store(Batch),
    /// Send a message. It may be lost.
    Send(ReplicaId, Message),
    /// Write the bytes of a frame at this offset of the region that the replica has granted. If that fails, end the
    /// connection.
    Write(ReplicaId, u32, Vec<u8>),
    /// Permit a replica to write into the region of its connection. No effect if the replica is permitted already. If
    /// that fails, end the connection.
    Grant(ReplicaId),
    /// Revoke the right to write of all replicas before any later action. If that fails, end the connection.
    Fence,
    /// A record of a client is committed: report its index to the client.
    Committed(RequestId, Index),
    /// This replica does not lead any more: clients that wait must try another replica.
    Deposed,
}

/// The role of a replica in its term.
#[derive(Clone, Debug)]
pub enum Role {
    /// It stores the records of the leader.
    Follower {
        /// The leader of the term, if it is known.
        leader: Option<ReplicaId>,
        /// Up to this record its log is known to equal that of the leader.
        matched: Index,
        /// The number of frames of the grant that it has read.
        frames: u64,
        /// The index in the last mismatch report, until a frame follows the end of the log.
        lacks: Option<Index>,
        /// When it has last reported to the leader.
        reported: Duration,
    },
    /// It collects votes.
    Candidate {
        /// Whether each replica has voted for it.
        votes: Vec<bool>,
    },
    /// It appends records.
    Leader {
        /// The progress of each replica.
        progress: Vec<Progress>,
    },
}

impl Role {
    /// Returns the role of a replica that has not heard of the leader yet.
    pub(super) fn follower(leader: Option<ReplicaId>) -> Role {
        Role::Follower { leader, matched: 0, frames: 0, lacks: None, reported: Duration::ZERO }
    }
}

/// An action that waits until a batch is stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The own log is stored up to this record.
    Durable(Index),
    /// Start the election of this term.
    Campaign(Term),
    Send(ReplicaId, Message),
}

/// The reason why a record is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// This replica does not lead. Contains the leader, if it is known.
    NotLeader(Option<ReplicaId>),
    /// Too many records are not committed; try again after an [`Action::Committed`].
    Full,
}

/// The term of a message is at most this much later than the own one. So one message cannot use up the terms, and no
/// replica misses as many elections.
const LATER: Term = 1 << 32;

/// A replica of the log.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) random: fastrand::Rng,
    pub(super) ballot: Ballot,
    pub(super) log: Log,
    pub(super) commit: Index,
    pub(super) role: Role,
    /// The time of the next election or heartbeat.
    pub(super) deadline: Duration,
    /// Up to this record the log is stored.
    pub(super) durable: Index,
    /// The number of the last batch, and of the last one that is stored.
    issued: u64,
    stored: u64,
    waiting: VecDeque<(u64, Then)>,
    pub(super) actions: VecDeque<Action>,
}

impl Machine {
    /// Starts a replica with its stored ballot and records, as a follower.
    #[must_use]
    pub fn new(config: Config, ballot: Ballot, records: Vec<Record>, now: Duration) -> Self {
        let log = Log::new(records);
        let mut machine = Machine {
            random: fastrand::Rng::with_seed(config.seed),
            config,
            ballot,
            durable: log.last_index(),
            log,
            commit: 0,
            role: Role::follower(None),
            deadline: now,
            issued: 0,
            stored: 0,
            waiting: VecDeque::new(),
            actions: VecDeque::new(),
        };
        machine.restart_election_timer(now);
        machine
    }

    /// Returns the next action.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the time of the next [`Machine::tick`].
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now: Duration) {
        if now < self.deadline {
            return;
        }
        match self.role {
            Role::Leader { .. } => self.heartbeat(now),
            Role::Follower { .. } | Role::Candidate { .. } => self.campaign(now),
        }
    }

    /// Handles a message.
    pub fn receive(&mut self, now: Duration, from: ReplicaId, message: Message) {
        if message.term() > self.ballot.term.saturating_add(LATER).min(Term::MAX - LATER) {
            return;
        }
        if message.term() > self.ballot.term {
            self.follow_term(now, message.term(), None);
        }
        match message {
            Message::RequestVote { term, last } => self.request_vote(now, from, term, last),
            Message::Heartbeat { term, commit, may_write } => {
                self.receive_heartbeat(now, from, term, commit, may_write);
            }
            // An answer to a message of this replica in an earlier term.
            _ if message.term() < self.ballot.term => {}
            Message::Vote { granted, .. } => self.receive_vote(now, from, granted),
            Message::Granted { last, .. } => self.granted(now, from, last),
            Message::Stored { index, frames, .. } => self.stored_at(now, from, index, frames),
            Message::Mismatch { index, frames, .. } => self.mismatch(now, from, index, frames),
        }
    }

    /// Handles a frame that a peer has written into the memory of this replica.
    pub fn receive_frame(&mut self, now: Duration, from: ReplicaId, frame: Frame) {
        self.follow_frame(now, from, frame);
    }

    /// Reports that the batch with this number and all earlier ones are stored.
    pub fn stored(&mut self, number: u64) {
        self.stored = self.stored.max(number);
        while let Some(&(_, then)) = self.waiting.front().filter(|(number, _)| *number <= self.stored) {
            self.waiting.pop_front();
            match then {
                Then::Durable(index) => {
                    self.durable = self.durable.max(index);
                    self.advance_commit();
                }
                Then::Campaign(term) => self.send_requests(term),
                Then::Send(to, message) => self.actions.push_back(Action::Send(to, message)),
            }
        }
    }

    /// Reports that a connection with a peer has begun. The rights of an earlier connection have ended.
    pub fn connected(&mut self, peer: ReplicaId) {
        self.disconnected_from(peer);
        if let Role::Leader { .. } = self.role {
            self.send_heartbeat(peer);
        }
    }

    /// Reports that the connection with a peer has ended. If the peer leads, the next election starts soon.
    pub fn disconnected(&mut self, now: Duration, peer: ReplicaId) {
        self.disconnected_from(peer);
        if self.leader() == Some(peer) && peer != self.config.id {
            let soon = now + self.config.heartbeat.mul_f64(self.random.f64() * 2.0);
            self.deadline = self.deadline.min(soon);
        }
    }

    fn disconnected_from(&mut self, peer: ReplicaId) {
        match &mut self.role {
            Role::Leader { progress } => progress[peer].disconnect(),
            Role::Follower { leader, frames, lacks, .. } if *leader == Some(peer) => (*frames, *lacks) = (0, None),
            Role::Follower { .. } | Role::Candidate { .. } => {}
        }
    }

    /// Appends a record of a client. [`Action::Committed`] follows, or [`Action::Deposed`]. A record that the client
    /// has sent before is not appended again.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing has changed.
    pub fn propose(&mut self, request: RequestId, data: Vec<u8>) -> Result<(), ProposeError> {
        let Role::Leader { .. } = self.role else { return Err(ProposeError::NotLeader(self.leader())) };
        match self.log.index_of(request) {
            Some(index) if index <= self.commit => self.actions.push_back(Action::Committed(request, index)),
            Some(_) => {}
            None if self.is_full() => return Err(ProposeError::Full),
            None => self.lead_record(Some(request), data),
        }
        Ok(())
    }

    /// Whether a leader accepts no record now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.log.last_index() - self.commit >= self.config.uncommitted
    }

    /// Returns a committed record.
    #[must_use]
    pub fn read(&self, index: Index) -> Option<&Record> {
        if index <= self.commit { self.log.get(index) } else { None }
    }

    /// Returns the commit index: all records up to it are committed.
    #[must_use]
    pub fn commit(&self) -> Index {
        self.commit
    }

    /// Returns the end of the log.
    #[must_use]
    pub fn last(&self) -> Position {
        self.log.last()
    }

    /// Returns the term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.ballot.term
    }

    /// Returns the role.
    #[must_use]
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Returns the leader of the term, if it is known.
    #[must_use]
    pub fn leader(&self) -> Option<ReplicaId> {
        match self.role {
            Role::Follower { leader, .. } => leader,
            Role::Candidate { .. } => None,
            Role::Leader { .. } => Some(self.config.id),
        }
    }

    pub(super) fn is_majority(&self, count: usize) -> bool {
        count * 2 > self.config.members
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let id = self.config.id;
        (0..self.config.members).filter(move |&peer| peer != id)
    }

    pub(super) fn restart_election_timer(&mut self, now: Duration) {
        self.deadline = now + self.config.election_timeout.mul_f64(1.0 + self.random.f64());
    }

    /// Stores a ballot.
    pub(super) fn store_ballot(&mut self, ballot: Ballot) {
        self.ballot = ballot;
        self.store(Some(ballot), 0, Vec::new());
    }

    /// Replaces the records from `from` on, in memory and on the disk.
    pub(super) fn store_records(&mut self, from: Index, records: Vec<Record>) {
        self.log.truncate(from);
        // The removed records do not count as stored.
        self.durable = self.durable.min(from - 1);
        for (_, then) in &mut self.waiting {
            if let Then::Durable(index) = then {
                *index = (*index).min(from - 1);
            }
        }
        records.iter().for_each(|record| self.log.push(record.clone()));
        self.store(None, from, records);
        self.after_store(Then::Durable(self.log.last_index()));
    }

    fn store(&mut self, ballot: Option<Ballot>, from: Index, records: Vec<Record>) {
        self.issued += 1;
        self.actions.push_back(Action::Store(Batch { number: self.issued, ballot, from, records }));
    }

    /// Runs an action once all batches so far are stored.
    pub(super) fn after_store(&mut self, then: Then) {
        self.waiting.push_back((self.issued, then));
        self.stored(self.stored);
    }

    /// Sends a message about stored data: it is sent once all batches so far are stored.
    pub(super) fn send_stored(&mut self, to: ReplicaId, message: Message) {
        self.after_store(Then::Send(to, message));
    }
}
