//! Terms and votes.

use std::time::Duration;

use super::log::{Position, Term};
use super::machine::{Action, Ballot, Machine, ReplicaId, Role, Then};
use super::message::Message;
use super::progress::Progress;

impl Machine {
    /// Becomes a follower in a later term, without a known leader. The leader of the earlier term cannot write any
    /// more.
    pub(super) fn follow_term(&mut self, now: Duration, term: Term, vote: Option<ReplicaId>) {
        self.actions.push_back(Action::Fence);
        self.store_ballot(Ballot { term, vote });
        self.become_follower(now, None);
    }

    /// Becomes a follower in its own term.
    pub(super) fn become_follower(&mut self, now: Duration, leader: Option<ReplicaId>) {
        if let Role::Leader { .. } = self.role {
            self.actions.push_back(Action::Deposed);
        }
        self.role = Role::follower(leader);
        self.restart_election_timer(now);
    }

    /// Starts an election.
    pub(super) fn campaign(&mut self, now: Duration) {
        self.follow_term(now, self.ballot.term + 1, Some(self.config.id));
        self.role = Role::Candidate { votes: vec![false; self.config.members] };
        self.after_store(Then::Campaign(self.ballot.term));
    }

    /// Requests votes. Called once the own vote is stored.
    pub(super) fn send_requests(&mut self, term: Term) {
        if term != self.ballot.term || !matches!(self.role, Role::Candidate { .. }) {
            return;
        }
        let message = Message::RequestVote { term, last: self.log.last() };
        for peer in self.peers() {
            self.actions.push_back(Action::Send(peer, message));
        }
        self.count_vote(self.config.id);
    }

    pub(super) fn request_vote(&mut self, now: Duration, from: ReplicaId, term: Term, last: Position) {
        let Ballot { term: own, vote } = self.ballot;
        let granted = term == own
            && matches!(self.role, Role::Follower { .. })
            && vote.is_none_or(|vote| vote == from)
            && last >= self.log.last();
        if granted && vote.is_none() {
            self.store_ballot(Ballot { term, vote: Some(from) });
        }
        if granted {
            self.restart_election_timer(now);
        }
        self.send_stored(from, Message::Vote { term: own, granted });
    }

    pub(super) fn receive_vote(&mut self, now: Duration, from: ReplicaId, granted: bool) {
        if granted && matches!(self.role, Role::Candidate { .. }) {
            self.count_vote(from);
            if let Role::Leader { .. } = self.role {
                self.heartbeat(now);
            }
        }
    }

    fn count_vote(&mut self, from: ReplicaId) {
        let Role::Candidate { votes } = &mut self.role else { return };
        votes[from] = true;
        let count = votes.iter().filter(|vote| **vote).count();
        if self.is_majority(count) {
            self.lead();
        }
    }

    /// Becomes the leader of its term. The commit of the empty record commits the records of earlier terms.
    fn lead(&mut self) {
        let next = self.log.last_index() + 1;
        self.role = Role::Leader { progress: vec![Progress::new(next); self.config.members] };
        // The next tick sends heartbeats.
        self.deadline = Duration::ZERO;
        self.lead_record(None, Vec::new());
    }
}
