//! The leader: appends records, writes them into the memory of replicas, and commits.

use std::time::Duration;

use super::log::{Index, Position, Record, RequestId};
use super::machine::{Action, Machine, ReplicaId, Role};
use super::message::{Frame, Message};
use super::progress::Progress;
use super::room::Room;

impl Machine {
    /// Sends heartbeats. A leader without answers of a majority for an election timeout resigns, so that its clients
    /// try other replicas.
    pub(super) fn heartbeat(&mut self, now: Duration) {
        let timeout = self.config.election_timeout;
        let (id, members) = (self.config.id, self.config.members);
        let Role::Leader { progress } = &mut self.role else { return };
        // A new leader counts this time from its first heartbeat.
        progress.iter_mut().for_each(|progress| _ = progress.seen.get_or_insert(now));
        let lost = |peer: &ReplicaId| progress[*peer].seen.is_some_and(|seen| now > seen + timeout);
        let alive = (0..members).filter(|peer| *peer == id || !lost(peer)).count();
        if !self.is_majority(alive) {
            self.become_follower(now, None);
            return;
        }
        self.deadline = now + self.config.heartbeat;
        for peer in self.peers() {
            self.send_heartbeat(peer);
        }
    }

    pub(super) fn send_heartbeat(&mut self, to: ReplicaId) {
        let Role::Leader { progress } = &self.role else { return };
        let may_write = progress[to].room.is_some();
        let message = Message::Heartbeat { term: self.ballot.term, commit: self.commit, may_write };
        self.actions.push_back(Action::Send(to, message));
    }

    /// Appends a record to the own log, and writes it to the replicas.
    pub(super) fn lead_record(&mut self, request: Option<RequestId>, data: Vec<u8>) {
        let record = Record { term: self.ballot.term, request, data };
        self.store_records(self.log.last_index() + 1, vec![record]);
        for peer in self.peers() {
            self.write_frames(peer);
        }
    }

    /// Returns the progress of a replica that has sent a message, if this replica leads.
    fn progress(&mut self, now: Duration, of: ReplicaId) -> Option<&mut Progress> {
        let Role::Leader { progress } = &mut self.role else { return None };
        progress[of].seen = Some(now);
        Some(&mut progress[of])
    }

    /// Handles the grant of the right to write at a replica.
    pub(super) fn granted(&mut self, now: Duration, from: ReplicaId, last: Index) {
        let (own, region) = (self.log.last_index(), self.config.region);
        let Some(progress) = self.progress(now, from).filter(|progress| progress.room.is_none()) else { return };
        progress.room = Some(Room::new(region));
        // At least the last record is written, even if the replica has stored it. By a frame the replica detects that
        // the logs agree, and gets the commit index.
        progress.next = last.min(own - 1) + 1;
        self.write_frames(from);
    }

    /// Handles the report that a replica has stored records.
    pub(super) fn stored_at(&mut self, now: Duration, from: ReplicaId, index: Index, frames: u64) {
        let own = self.log.last_index();
        let Some(progress) = self.progress(now, from) else { return };
        progress.matched = progress.matched.max(index.min(own));
        progress.next = progress.next.max(progress.matched + 1);
        if let Some(room) = &mut progress.room {
            room.release(frames);
        }
        self.advance_commit();
        self.write_frames(from);
    }

    /// Handles the report that a replica lacks records before those of a frame, or has other ones.
    pub(super) fn mismatch(&mut self, now: Duration, from: ReplicaId, index: Index, frames: u64) {
        let Some(progress) = self.progress(now, from) else { return };
        progress.next = progress.next.min(index.saturating_add(1)).max(progress.matched + 1);
        if let Some(room) = &mut progress.room {
            room.release(frames);
        }
        self.write_frames(from);
    }

    /// Writes the records that a replica lacks, as far as there is room.
    fn write_frames(&mut self, to: ReplicaId) {
        let Role::Leader { progress } = &mut self.role else { return };
        let Progress { next, room: Some(room), .. } = &mut progress[to] else { return };
        while *next <= self.log.last_index() && room.frames() < self.config.frames {
            let mut len = Frame::HEADER;
            let fits = |record: &&Record| {
                len += Record::HEADER + record.data.len();
                len <= self.config.frame
            };
            let records = self.log.since(*next);
            let count = records.iter().take_while(fits).count().max(1);
            let index = *next - 1;
            let previous = Position { index, term: self.log.term(index).unwrap_or(0) };
            let frame =
                Frame { term: self.ballot.term, previous, commit: self.commit, records: records[..count].to_vec() };
            let bytes = frame.encode();
            let Some(offset) = room.reserve(bytes.len()) else { break };
            *next += count as Index;
            self.actions.push_back(Action::Write(to, offset, bytes));
        }
    }

    /// Commits the records that a majority has stored. The majority is counted for records of the leader's own term;
    /// earlier records are committed with them.
    pub(super) fn advance_commit(&mut self) {
        let Role::Leader { progress } = &self.role else { return };
        let own = self.config.id;
        let stored = |peer: ReplicaId| if peer == own { self.durable } else { progress[peer].matched };
        let members = 0..self.config.members;
        let has_majority =
            |index: &Index| self.is_majority(members.clone().filter(|peer| stored(*peer) >= *index).count());
        let Some(index) = members.clone().map(stored).filter(has_majority).max() else { return };
        if index <= self.commit || self.log.term(index) != Some(self.ballot.term) {
            return;
        }
        for committed in self.commit + 1..=index {
            if let Some(request) = self.log.get(committed).and_then(|record| record.request) {
                self.actions.push_back(Action::Committed(request, committed));
            }
        }
        self.commit = index;
    }
}
