//! I/O queues that reactors serve: giving them away, sending on them, and having them ended.

use std::sync::mpsc::TryRecvError;

use cmid_mio::proto::Time;
use cmid_mio::proto::datapath::DataPath;

use super::reactor::{Command, News};
use super::request::{Request, Tag};
use super::{Initiator, Loss};

impl<D: DataPath> Initiator<D> {
    /// Gives each I/O queue to its reactor. The queues of one that has ended stay here.
    pub(super) fn hand_over(&mut self) -> Result<(), Loss> {
        let count = self.reactors.len();
        if count == 0 {
            return Ok(());
        }
        for (at, lane) in self.lanes.iter_mut().skip(1).enumerate() {
            let Some(reactor) = self.reactors.get_mut(at % count).filter(|reactor| !reactor.has_ended()) else {
                continue;
            };
            let qid = lane.qid;
            let released = lane.release(self.driver.drive(), &self.registry, at % count);
            if let Some((id, link)) = released.map_err(|error| Loss::Moved { qid, error })? {
                reactor.give(Command::Serve { qid, id, link }).map_err(|_| Loss::Reactor)?;
            }
        }
        Ok(())
    }

    /// Sends a request on a queue that a reactor has. Returns false if it waits again.
    pub(super) fn give(&mut self, at: usize, request: Request, deadline: Time) -> bool {
        let Some(lane) = self.lanes.get_mut(at) else { return false };
        let Some(away) = &mut lane.away else { return false };
        let command = Command::Send { qid: lane.qid, tag: Tag::Request(request), deadline };
        let Some(reactor) = self.reactors.get_mut(away.reactor) else { return false };
        away.outstanding += 1;
        let Err(refused) = reactor.give(command) else { return true };
        if let Some(Command::Send { tag: Tag::Request(request), .. }) = refused {
            self.waiting_of(request.on).push_front(request);
        }
        self.lose(Loss::Reactor);
        false
    }

    pub(super) fn wake_reactors(&mut self) {
        for reactor in &mut self.reactors {
            reactor.wake();
        }
    }

    /// Takes what the reactors tell.
    pub(super) fn take_news(&mut self) {
        for at in 0..self.reactors.len() {
            while let Some(reactor) = self.reactors.get_mut(at) {
                match reactor.news.try_recv() {
                    Ok(News::Over(qid, over)) => {
                        let lane = self.lanes.get_mut(usize::from(qid));
                        if let Some(away) = lane.and_then(|lane| lane.away.as_mut()) {
                            away.outstanding = away.outstanding.saturating_sub(1);
                        }
                        self.take_over(over);
                    }
                    Ok(News::Lost(loss)) => self.lose(loss),
                    // It is awaited where it was asked for.
                    Ok(News::Ended(_)) => {}
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        if self.lanes.iter().any(|lane| lane.away.is_some_and(|away| away.reactor == at)) {
                            self.lose(Loss::Reactor);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Has all queues ended that reactors have, and waits for it: they make the same calls that are made here otherwise. Returns the
    /// requests that were outstanding there. Those that were over before have ended.
    pub(super) fn end_reactors(&mut self) -> Vec<Request> {
        let is_away = |at| move |lane: &super::Lane<D>| lane.away.is_some_and(|away| away.reactor == at);
        let ending: Vec<usize> = (0..self.reactors.len()).filter(|&at| self.lanes.iter().any(is_away(at))).collect();
        for &at in &ending {
            if let Some(reactor) = self.reactors.get_mut(at) {
                // It has ended, and with it its connections.
                let _ = reactor.give(Command::End);
                reactor.wake();
            }
        }
        let mut requests = Vec::new();
        for at in ending {
            while let Some(Ok(news)) = self.reactors.get(at).map(|reactor| reactor.news.recv()) {
                match news {
                    News::Ended(tags) => {
                        let of = |tag| if let Tag::Request(request) = tag { Some(request) } else { None };
                        requests.extend(tags.into_iter().filter_map(of));
                        break;
                    }
                    // Another loss is the reason already.
                    News::Lost(_) => {}
                    News::Over(_, over) => self.take_over(over),
                }
            }
        }
        self.lanes.iter_mut().for_each(|lane| lane.away = None);
        requests
    }
}
