//! The follower: grants the right to write, and stores records.

use std::time::Duration;

use super::log::{Index, Record, Term};
use super::machine::{Action, Machine, ReplicaId, Role};
use super::message::{Frame, Message};

/// A follower without news answers heartbeats this often in an election timeout: a report or two may be lost before the leader
/// misses its majority. More answers would tell it nothing.
const REPORTS: u32 = 3;

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
        let Role::Follower { matched, frames, lacks, reported, .. } = self.role else { return };
        self.restart_election_timer(now);
        self.commit = self.commit.max(commit.min(matched));
        if !may_write {
            self.actions.push_back(Action::Grant(from));
            self.report(now, from, Message::Granted { term, last: self.log.last_index() });
        } else if now >= reported + self.config.election_timeout / REPORTS {
            // Reports again, because an earlier report may be lost.
            let report = match lacks {
                Some(index) => Message::Mismatch { term, index, frames },
                None => Message::Stored { term, index: matched, frames },
            };
            self.report(now, from, report);
        }
    }

    /// Sends a message to the leader about what is stored.
    fn report(&mut self, now: Duration, leader: ReplicaId, message: Message) {
        if let Role::Follower { reported, .. } = &mut self.role {
            *reported = now;
        }
        self.send_stored(leader, message);
    }

    pub(super) fn follow_frame(&mut self, now: Duration, from: ReplicaId, frame: Frame) {
        let Frame { term, previous, commit, records } = frame;
        let own = self.log.last_index();
        let Role::Follower { leader: Some(leader), matched, frames, lacks, .. } = &mut self.role else { return };
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
            self.report(now, from, Message::Mismatch { term, index, frames: read });
            return;
        }
        // From the first record that differs on, the leader's records replace the own ones.
        let is_known = |(at, record): &(Index, &Record)| self.log.term(*at) == Some(record.term);
        let known = (previous.index + 1..).zip(&records).take_while(is_known).count();
        // A leader has all committed records, removes none of its own, and has none of a later term.
        let takes_back = known < records.len() && previous.index + (known as Index) < self.commit.max(*matched);
        if takes_back || records.iter().any(|record| record.term > term) {
            return;
        }
        *lacks = None;
        *matched = (*matched).max(previous.index + records.len() as Index);
        self.commit = self.commit.max(commit.min(*matched));
        let index = *matched;
        if known < records.len() {
            let new = records.into_iter().skip(known).collect();
            self.store_records(previous.index + 1 + known as Index, new);
        }
        self.restart_election_timer(now);
        self.report(now, from, Message::Stored { term, index, frames: read });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ballot, Config, Position};
    use super::*;

    fn machine(heartbeat: Duration) -> Machine {
        let config = Config {
            id: 1,
            members: 3,
            election_timeout: heartbeat * 5,
            heartbeat,
            region: 400,
            frames: 4,
            frame: 120,
            uncommitted: 6,
            seed: 1,
        };
        Machine::new(config, Ballot::default(), Vec::new(), Duration::ZERO)
    }

    #[test]
    fn a_vote_of_the_last_term_does_not_stop_a_replica() {
        let (mut machine, last) = (machine(Duration::from_millis(30)), Position::default());
        for term in [Term::MAX, Term::MAX / 2] {
            machine.receive(Duration::ZERO, 0, Message::RequestVote { term, last });
            machine.receive(Duration::ZERO, 0, Message::Heartbeat { term, commit: 0, may_write: false });
        }
        machine.tick(machine.deadline());
        assert_eq!((machine.term(), machine.leader()), (1, None));
        // A replica that was away for years.
        machine.receive(Duration::ZERO, 0, Message::RequestVote { term: 1 << 32, last });
        assert_eq!(machine.term(), 1 << 32);
    }

    #[test]
    fn a_frame_replaces_no_committed_record() {
        let mut machine = machine(Duration::from_millis(30));
        let mut write = |leader, term, index, terms: &[Term]| {
            machine.receive(Duration::ZERO, leader, Message::Heartbeat { term, commit: 0, may_write: false });
            let previous = Position { term: u64::from(index > 0), index };
            let records = terms.iter().map(|&term| Record { term, request: None, data: vec![] }).collect();
            machine.receive_frame(Duration::ZERO, leader, Frame { term, previous, commit: Index::MAX, records });
            (machine.commit(), machine.last(), machine.is_full())
        };
        let two = (2, Position { term: 1, index: 2 }, false);
        assert_eq!(write(0, 1, 0, &[1, 1]), two);
        assert_eq!(write(0, 1, 0, &[0]), two);
        assert_eq!(write(2, 2, 0, &[2, 2, 2]), two, "another leader");
        assert_eq!(write(2, 2, 2, &[3]), two, "a record of a term that has not begun");
        assert_eq!(write(2, 2, 2, &[2]), (3, Position { term: 2, index: 3 }, false));
    }

    #[test]
    fn a_follower_without_news_answers_a_few_heartbeats_of_each_timeout() {
        let heartbeat = Duration::from_millis(30);
        let mut machine = machine(heartbeat);
        let mut answered = Vec::new();
        for number in 0..=50 {
            let may_write = number > 0;
            machine.receive(heartbeat * number, 0, Message::Heartbeat { term: 1, commit: 0, may_write });
            while let Some(action) = machine.next_action() {
                if let Action::Store(batch) = action {
                    machine.stored(batch.number);
                } else if let Action::Send(0, _) = action {
                    answered.push(number);
                }
            }
        }
        assert_eq!(answered, (0..=50).step_by(2).collect::<Vec<_>>());
    }
}
