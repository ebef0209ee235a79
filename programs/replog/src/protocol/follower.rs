//! The follower: grants the right to write, and stores records.

use std::time::Duration;

use super::log::{Index, Record, Term};
use super::machine::{Action, Machine, ReplicaId, Role};
use super::message::{Frame, Message};

impl Machine {
    pub(super) fn receive_heartbeat(
        &mut self,
        now: Duration,
        from: ReplicaId,
        term: Term,
        commit: Index,
        may_write: bool,
    ) {
        let own = self.ballot.term;
        if term < own {
            // The later term deposes the sender.
            self.send_stored(from, Message::Stored { term: own, index: 0, frames: 0 });
            return;
        }
        if self.leader() != Some(from) {
            self.become_follower(now, Some(from));
        }
        let Role::Follower { matched, frames, lacks, .. } = self.role else { return };
        self.restart_election_timer(now);
        self.commit = self.commit.max(commit.min(matched));
        if may_write {
            // Answers again, because an earlier answer may be lost.
            self.send_stored(
                from,
                match lacks {
                    Some(index) => Message::Mismatch { term, index, frames },
                    None => Message::Stored { term, index: matched, frames },
                },
            );
        } else {
            self.actions.push_back(Action::Grant(from));
            self.send_stored(from, Message::Granted { term, last: self.log.last_index() });
        }
    }

    pub(super) fn follow_frame(&mut self, now: Duration, from: ReplicaId, frame: Frame) {
        let Frame { term, previous, commit, records } = frame;
        let own = self.log.last_index();
        let Role::Follower { leader: Some(leader), matched, frames, lacks } = &mut self.role else { return };
        // A deposed leader has written this frame before it was fenced.
        if *leader != from || term != self.ballot.term {
            return;
        }
        *frames += 1;
        let read = *frames;
        if self.log.term(previous.index) != Some(previous.term) {
            let index = if previous.index > own { own } else { self.log.before_term_of(previous.index) };
            *lacks = Some(index);
            self.restart_election_timer(now);
            self.send_stored(from, Message::Mismatch { term, index, frames: read });
            return;
        }
        *lacks = None;
        let last = previous.index + records.len() as Index;
        *matched = (*matched).max(last);
        self.commit = self.commit.max(commit.min(*matched));
        let index = *matched;
        // From the first record that differs on, the leader's records replace the own ones.
        let is_known = |(at, record): &(Index, &Record)| self.log.term(*at) == Some(record.term);
        let known = (previous.index + 1..).zip(&records).take_while(is_known).count();
        if known < records.len() {
            let new = records.into_iter().skip(known).collect();
            self.store_records(previous.index + 1 + known as Index, new);
        }
        self.restart_election_timer(now);
        self.send_stored(from, Message::Stored { term, index, frames: read });
    }
}
