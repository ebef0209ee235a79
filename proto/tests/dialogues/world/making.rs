//! Calls: of requests, and those that follow. The device makes them on both cores at once.

use cmid_proto::{Call, Error, Flow, Outcome, Progress, Refused};

use super::{OpenRequest, World};
use crate::start::Start;

/// What a request or a step has come to.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) calls: Vec<(Call, Outcome)>,
    pub(super) result: Result<Progress, Error>,
    /// The id of the last call was on a private channel.
    private: bool,
}

impl Made {
    pub(super) fn only_call(&self) -> Call {
        let [(call, _)] = *self.calls else { panic!("not one call: {self:?}") };
        call
    }
}

impl World {
    /// Makes all calls of a request, or of a step that follows.
    pub(super) fn make(&mut self, start: Start) -> Result<Made, Refused> {
        let (core, twin, now) = (&mut self.core, &mut self.twin, self.now);
        // What is begun and dropped has not happened.
        let is_begun = start.begin(core, now).map(|begun| begun.is_some());
        if is_begun != Ok(true) {
            assert_eq!(
                start.begin(twin, now).map(|begun| begun.is_some()),
                is_begun,
                "the twin answers something else"
            );
            return is_begun.map(|_| Made { calls: Vec::new(), result: Ok(Progress::Done), private: false });
        }
        if let Start::Following = start {
            // It has forgotten what is not due any more, and done what needs no call.
            let _ = twin.next();
        }
        assert_eq!(core, twin, "{start:?} was not made and changed something");
        let (mut calls, mut private) = (Vec::new(), false);
        let (Ok(Some(mut begun)), Ok(Some(mut other))) = (start.begin(core, now), start.begin(twin, now)) else {
            panic!("{start:?} is refused the second time")
        };
        loop {
            assert_eq!((begun.call(), begun.private_data()), (other.call(), other.private_data()));
            assert_eq!(begun.core(), other.core(), "the twin went another way");
            let mut outcome = Ok(());
            if let Some(call) = begun.call() {
                let owes = |owed: &super::Owed| match call {
                    Call::Destroy { .. } if start.gives_up_acks() => false,
                    Call::Migrate { id, .. } | Call::Destroy { id } => owed.owner == id,
                    Call::Leave { group, .. } => owed.group == Some(group),
                    _ => false,
                };
                assert!(!self.ack_tokens.iter().any(owes), "{call:?} while acks are owed");
                let home = call.id().and_then(|id| begun.core().channel(id));
                private = home.is_some_and(|home| begun.core().channel_info(home).is_some_and(|it| it.is_private));
                outcome = match &mut self.fails {
                    None => Ok(()),
                    Some((0, errno)) => {
                        let errno = *errno;
                        self.fails = None;
                        Err(errno)
                    }
                    Some((others, _)) => {
                        *others -= 1;
                        Ok(())
                    }
                };
                calls.push((call, outcome));
            }
            match (begun.end(outcome), other.end(outcome)) {
                (Flow::Next(next), Flow::Next(twin)) => (begun, other) = (next, twin),
                (Flow::Done(result), Flow::Done(twin)) => {
                    assert_eq!(result, twin, "the twin answers something else");
                    return Ok(Made { calls, result, private }.checked());
                }
                (one, two) => panic!("{one:?} and {two:?}"),
            }
        }
    }

    /// Makes the calls that follow from earlier steps, at most this number. Returns whether there is none left.
    pub(crate) fn follow(&mut self, most: u8) -> bool {
        for _ in 0..most {
            let made = self.step_on(Start::Following);
            if made.calls.is_empty() {
                assert!(self.core.next().is_none());
                return true;
            }
        }
        false
    }

    /// Destroys the next child of a listener that is destroyed.
    pub(crate) fn child(&mut self) -> bool {
        !self.step_on(Start::Child).calls.is_empty()
    }

    fn step_on(&mut self, start: Start) -> Made {
        let made = self.make(start).unwrap_or_else(|refused| panic!("{refused}"));
        match made.result {
            Ok(Progress::Done) => {}
            Ok(Progress::WhenAcked) => panic!("{made:?} waits"),
            Err(Error::Fault(_)) => assert!(made.calls.iter().any(|(_, outcome)| outcome.is_err()), "{made:?}"),
            Err(_) => panic!("{made:?} has an end that nobody waits for"),
        }
        // The end of a destruction that has waited is an event, unless its channel is private: that goes with the id.
        if let [(Call::Destroy { id }, Ok(()))] = *made.calls {
            if let Some(known) = self.known.get_mut(&id).filter(|_| made.private) {
                known.open.retain(|&open| open != OpenRequest::Destroy);
                self.forget_if_gone(id);
            }
        }
        if !made.calls.is_empty() {
            self.look();
        }
        made
    }

    /// Makes every call that waits, with success.
    pub(crate) fn well(&mut self) {
        self.fails = None;
        assert!(self.follow(u8::MAX), "there is no end of calls");
        while self.child() {}
        assert!(self.follow(u8::MAX), "there is no end of calls");
    }
}

impl Made {
    /// A request ends with the first call that fails, and with success only if none has.
    fn checked(self) -> Self {
        let failed = self.calls.iter().position(|(_, outcome)| outcome.is_err());
        assert!(failed.is_none_or(|at| at + 1 == self.calls.len()), "a call after one that failed: {self:?}");
        if failed.is_none() {
            assert!(self.result.is_ok(), "{self:?}");
        }
        self
    }
}
