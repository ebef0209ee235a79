//! I/O queues that reactors serve: giving them away, sending on them, and having them ended.

use std::sync::mpsc::TryRecvError;

use cmid_mio::proto::Time;
use cmid_mio::proto::datapath::DataPath;

use super::reactor::{Command, News};
use super::request::{Request, Tag, TagOf};
use super::{BufferOf, Initiator, Loss};

impl<D: DataPath> Initiator<D> {
    /// Gives each I/O queue to its reactor, if there are any.
    pub(super) fn hand_over(&mut self) -> Result<(), Loss> {
        let count = self.reactors.len();
        for lane in self.lanes.iter_mut().skip(1) {
            let qid = lane.qid;
            let Some(reactor) = reactor_of(qid, count).and_then(|at| self.reactors.get_mut(at)) else { break };
            let released = lane.release(self.driver.drive(), &self.registry);
            if let Some(command) = released.map_err(|error| Loss::Moved { qid, error })? {
                reactor.give(command).map_err(|_| Loss::Reactor)?;
            }
        }
        Ok(())
    }

    /// Sends a request on a queue that a reactor has. With an error it waits again.
    pub(super) fn give(&mut self, qid: u16, request: Request<BufferOf<D>>, deadline: Time) -> Result<(), Loss> {
        let command = Command::Send { qid, tag: Tag::Request(request), deadline };
        let given = match reactor_of(qid, self.reactors.len()).and_then(|at| self.reactors.get_mut(at)) {
            Some(reactor) => reactor.give(command),
            None => Err(command),
        };
        if let Err(Command::Send { tag: Tag::Request(request), .. }) = given {
            self.waiting_of(request.on).push_front(request);
            return Err(Loss::Reactor);
        }
        self.change_room(qid, -1);
        Ok(())
    }

    fn change_room(&mut self, qid: u16, by: isize) {
        if let Some(room) = self.lanes.get_mut(usize::from(qid)).and_then(|lane| lane.away.as_mut()) {
            *room = room.saturating_add_signed(by);
        }
    }

    /// Takes what the reactors tell.
    pub(super) fn take_news(&mut self) {
        for at in 0..self.reactors.len() {
            while let Some(reactor) = self.reactors.get_mut(at) {
                match reactor.news.try_recv() {
                    Ok(News::Over(qid, over)) => {
                        self.change_room(qid, 1);
                        self.take_over(over);
                    }
                    Ok(News::Lost(loss)) => self.lose(loss),
                    // It is awaited where it was asked for.
                    Ok(News::Ended(_)) => {}
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        if self.lanes.iter().any(|lane| lane.away.is_some()) {
                            self.lose(Loss::Reactor);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Has all queues ended that reactors have, and waits for it: they make the same calls that are made here otherwise. Returns the
    /// commands that were outstanding there. Those that were over before have ended.
    pub(super) fn end_reactors(&mut self) -> Vec<TagOf<D>> {
        for reactor in &mut self.reactors {
            // One that has ended has no connections.
            let _ = reactor.give(Command::End);
            reactor.wake();
        }
        let mut tags = Vec::new();
        for at in 0..self.reactors.len() {
            while let Some(Ok(news)) = self.reactors.get(at).map(|reactor| reactor.news.recv()) {
                match news {
                    News::Over(_, over) => self.take_over(over),
                    // The reason is another loss already.
                    News::Lost(_) => {}
                    News::Ended(ended) => {
                        tags.extend(ended);
                        break;
                    }
                }
            }
        }
        self.lanes.iter_mut().for_each(|lane| lane.away = None);
        tags
    }
}

/// The reactor of an I/O queue, one after the other.
fn reactor_of(qid: u16, count: usize) -> Option<usize> {
    usize::from(qid.checked_sub(1)?).checked_rem(count)
}
