//! A CQ whose polls are scripted, and the methods that each CQ has by default.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use cmid_proto::Errno;
use cmid_proto::datapath::{Completion, CompletionQueue, CqRoom, CreateError};

#[derive(Debug)]
pub(crate) struct Scripted {
    depth: u32,
    /// The results of polls: so many completions with the `wr_id` 5.
    polls: Vec<Result<usize, Errno>>,
    pub(crate) calls: RefCell<Vec<&'static str>>,
}

fn done() -> Completion {
    Completion { wr_id: 5, ..Completion::default() }
}

impl Scripted {
    pub(crate) fn new(depth: u32, polls: Vec<Result<usize, Errno>>) -> Self {
        Scripted { depth, polls, calls: RefCell::default() }
    }
}

impl CompletionQueue for Scripted {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        self.calls.borrow_mut().push("poll");
        let polled = self.polls.remove(0)?;
        completions[..polled].fill(done());
        Ok(polled)
    }

    fn wait(&mut self, completions: &mut [Completion]) -> Result<usize, Errno> {
        self.poll_or_arm(completions)
    }

    fn num(&self) -> u32 {
        1
    }

    fn room(&self) -> CqRoom {
        CqRoom::new(self.depth)
    }

    fn resize(&mut self, _: u32) -> Result<(), CreateError> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn is_idle(&self) -> bool {
        self.polls.is_empty()
    }

    fn arm(&self) -> Result<(), Errno> {
        self.calls.borrow_mut().push("arm");
        Ok(())
    }

    fn arm_solicited(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn moderate(&self, _: u16, _: u16) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("it has no descriptor")
    }

    fn take_notifications(&self) -> Result<u32, Errno> {
        Ok(0)
    }
}

#[test]
fn one_completion_is_polled_or_none_or_the_error() {
    let mut cq = Scripted::new(1, vec![Ok(1), Ok(0), Err(Errno::EIO)]);
    assert_eq!([(); 3].map(|()| cq.poll_one()), [Ok(Some(done())), Ok(None), Err(Errno::EIO)]);
}

#[test]
fn a_cq_without_completions_is_armed_and_polled_once_more() {
    let mut cq = Scripted::new(1, vec![Ok(2), Ok(0), Ok(1), Ok(0), Ok(0), Err(Errno::EIO)]);
    let mut some = [Completion::default(); 2];
    assert_eq!([(); 4].map(|()| cq.poll_or_arm(&mut some)), [Ok(2), Ok(1), Ok(0), Err(Errno::EIO)]);
    assert_eq!(cq.calls.take(), ["poll", "poll", "arm", "poll", "poll", "arm", "poll", "poll"]);
}
