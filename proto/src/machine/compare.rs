//! Compares the short paths with the long ones in the state of a given core. For tests, fuzzers and model checkers.

use alloc::vec::Vec;

use super::{Admission, Core, Fetch, Read};
use crate::call::{Call, Outcome};
use crate::cm_event::CmEvent;
use crate::device::EventSink;
use crate::errno::Errno;
use crate::event::RawEvent;
use crate::key::{ChannelKey, IdKey};
use crate::request::Request;
use crate::time::Time;

/// The outcomes of the calls of a request. The second call is made only if the first succeeds.
const OUTCOMES: [[Outcome; 2]; 4] =
    [[Ok(()), Ok(())], [Err(Errno::EINVAL), Ok(())], [Err(Errno::ENETUNREACH), Ok(())], [Ok(()), Err(Errno::EINVAL)]];

/// A device that returns the same result to each read, and records the reads.
struct Given<'a> {
    fetched: Result<Option<RawEvent<&'a [u8]>>, Errno>,
    wanted: Option<(ChannelKey, IdKey)>,
}

impl Fetch for Given<'_> {
    fn fetch(&mut self, on: ChannelKey, child: IdKey, sink: &mut impl EventSink) -> Result<bool, Errno> {
        self.wanted = Some((on, child));
        let Some(raw) = self.fetched? else { return Ok(false) };
        sink.take(raw);
        Ok(true)
    }
}

impl Core {
    /// Returns whether a request has a short path, as a submission or by [`perform`](Core::perform). Does not change
    /// this core. For tests.
    ///
    /// # Panics
    /// If the short path and the long path lead to different cores, or if a request without a short path has changed
    /// the core.
    pub fn compare_request(&self, now: Time, id: IdKey, request: &Request<'_>, deadline: Time) -> bool {
        let in_steps = self.compare_submit(now, id, request, deadline);
        let at_once = OUTCOMES.map(|outcomes| self.compare_perform(now, id, request, deadline, outcomes));
        in_steps || at_once.contains(&true)
    }

    fn compare_perform(
        &self,
        now: Time,
        id: IdKey,
        request: &Request<'_>,
        deadline: Time,
        outcomes: [Outcome; 2],
    ) -> bool {
        let (mut short, mut long) = (self.clone(), self.clone());
        let mut made = Vec::new();
        let mut make = |call: &Call, private_data: &[u8]| {
            made.push((*call, private_data.to_vec()));
            outcomes[made.len() - 1]
        };
        let performed = short
            .perform(now, id, request, deadline, &mut make)
            .or_else(|| short.perform_sync(now, id, request, deadline, &mut make));
        let Some(result) = performed else {
            assert!(made.is_empty(), "{request:?} on {id}: a call was made and is not reported");
            self.assert_same(&short, "not performed");
            return false;
        };
        let submitted = long.submit_any(now, id, request, deadline);
        assert_eq!(submitted, Ok(()), "{request:?} on {id} was performed");
        let (mut calls, mut ended) = (Vec::new(), None);
        for outcome in outcomes.into_iter().take(made.len()) {
            let Some((token, call)) = long.poll_call() else { panic!("{request:?} on {id} has too few calls") };
            calls.push((call, long.call_data(token).to_vec()));
            assert_eq!(ended, None, "{request:?} on {id} has ended before {call:?}");
            ended = long.take_outcome(token, outcome).ok().flatten().map(|ended| ended.result);
        }
        assert_eq!(made, calls, "{request:?} on {id}: its calls");
        assert_eq!(Some(result), ended, "{request:?} on {id}: {outcomes:?}");
        long.assert_same(&short, "performed");
        let is_done = result.is_ok() && !Core::leaves_calls(request);
        assert!(!is_done || !short.has_calls(), "{request:?} on {id} has left a call");
        true
    }

    fn compare_submit(&self, now: Time, id: IdKey, request: &Request<'_>, deadline: Time) -> bool {
        let (mut short, mut long) = (self.clone(), self.clone());
        if !short.submit_short(now, id, request, deadline) {
            self.assert_same(&short, "not submitted");
            return false;
        }
        assert_eq!(long.submit_any(now, id, request, deadline), Ok(()), "{request:?} on {id} was submitted");
        long.assert_same(&short, "submitted");
        let [ours, theirs] = [&mut short, &mut long].map(Core::poll_call);
        assert_eq!(ours, theirs, "{request:?} on {id}: its call");
        let Some((token, _)) = ours else { panic!("{request:?} on {id} was submitted and has no call") };
        assert_eq!(short.call_data(token), long.call_data(token), "{request:?} on {id}: its private data");
        assert!(short.end_short(token), "{request:?} on {id}: its end");
        let ended = long.take_outcome(token, Ok(())).ok().flatten().map(|ended| ended.result);
        assert_eq!(ended, Some(Ok(())), "{request:?} on {id}: its end");
        long.assert_same(&short, "ended");
        true
    }

    /// Returns whether an event has a short path of admission and delivery. Does not change this core. For tests.
    ///
    /// # Panics
    /// As [`compare_request`](Core::compare_request).
    pub fn compare_event(&self, on: ChannelKey, raw: &RawEvent<&[u8]>) -> bool {
        for fetched in [Ok(Some(*raw)), Ok(None), Err(Errno::EIO)] {
            self.compare_read(on, fetched);
        }
        let (mut short, mut long) = (self.clone(), self.clone());
        let child = self.wants_event(on);
        let is_request = child.is_some_and(|child| short.admit_request_short(on, child, raw));
        if !is_request && !short.admit_short(on, raw) {
            self.assert_same(&short, "not admitted");
            return false;
        }
        let admitted = if is_request { Admission::Child(raw.id) } else { Admission::Known };
        assert_eq!(long.take_any_event(on, raw), Ok(admitted), "{raw:?} on {on}");
        long.assert_same(&short, "admitted");
        assert!(short.single.is_some() && long.single.is_none(), "{raw:?} on {on}: where it is stored");
        let to = short.single.as_ref().map_or(on, |single| single.on);
        for channel in [on, to] {
            assert_eq!(short.wants_event(channel), long.wants_event(channel), "{channel}, after {raw:?} on {on}");
        }
        let [ours, theirs] = [&mut short, &mut long].map(|core| core.poll_event(to));
        assert!(ours.is_some() && ours == theirs, "{ours:?} and {theirs:?}");
        long.assert_same(&short, "delivered");
        true
    }

    /// Returns whether a turn that reads this channel and gets `fetched` from the device has a short path, both after
    /// the report that the channel is readable and together with it. Does not change this core. For tests.
    ///
    /// # Panics
    /// As [`compare_request`](Core::compare_request).
    pub fn compare_read(&self, on: ChannelKey, fetched: Result<Option<RawEvent<&[u8]>>, Errno>) -> bool {
        [None, Some(on)].map(|reported| self.compare_read_of(on, reported, fetched)).contains(&true)
    }

    fn compare_read_of(
        &self,
        on: ChannelKey,
        reported: Option<ChannelKey>,
        fetched: Result<Option<RawEvent<&[u8]>>, Errno>,
    ) -> bool {
        let mut before = self.clone();
        if reported.is_none() {
            before.handle_readable(on);
        }
        let (mut short, mut long) = (before.clone(), before.clone());
        let mut given = Given { fetched, wanted: None };
        let mut done = Read::Done;
        let mut read = short.read_short(Time::ZERO, reported, &mut given, &mut done).map(|()| done);
        if read.is_none() && reported.is_none() {
            read = short.read_requests_short(Time::ZERO, None, &mut given);
        }
        let wanted = given.wanted;
        let Some(read) = read else {
            assert_eq!(wanted, None, "{on}: it was read");
            before.assert_same(&short, "not read");
            return false;
        };
        // If the turn does not read this channel, it reads another one that was readable before.
        let on = wanted.map_or(on, |(channel, _)| channel);
        if reported.is_some() {
            long.handle_readable(on);
        }
        long.handle_timeout(Time::ZERO);
        assert!(!long.has_calls() && long.poll_child().is_none(), "{on}: something else is to be done");
        let looked = long.poll_readable().and_then(|channel| Some((channel, long.wants_event(channel)?)));
        assert_eq!((wanted, long.poll_readable()), (looked, None), "{on}: what is read");
        match (read, fetched) {
            (Read::Done, Ok(Some(raw))) => {
                let is_request = raw.kind == CmEvent::ConnectRequest;
                let admitted = if is_request { Admission::Child(raw.id) } else { Admission::Known };
                assert_eq!(long.take_any_event(on, &raw), Ok(admitted), "{raw:?} on {on}");
                assert!(!short.has_work(), "{raw:?} on {on} is not all");
            }
            (Read::Taken(result), Ok(Some(raw))) => {
                assert_eq!(result, long.take_any_event(on, &raw), "{raw:?} on {on}");
            }
            (Read::Done, Ok(None)) => assert!(!short.has_work(), "there is more work than to read {on}"),
            (read, fetched) => assert!(
                matches!((&read, fetched), (&Read::Failed(channel, errno), Err(why)) if (channel, errno) == (on, why)),
                "{read:?} of {fetched:?}"
            ),
        }
        long.assert_same(&short, "read");
        true
    }

    /// Panics if two cores differ in any respect, including the deadlines.
    fn assert_same(&self, other: &Core, what: &str) {
        assert_eq!(self, other, "{what}");
        assert_eq!(self.poll_timeout(), other.poll_timeout(), "{what}: the nearest deadline");
        for ((key, ours), (_, theirs)) in self.ids.iter().zip(other.ids.iter()) {
            assert_eq!(ours.armed.at(), theirs.armed.at(), "{what}: {key}");
            assert!(ours.stored_plain_is_correct() && theirs.stored_plain_is_correct(), "{what}: {key}");
        }
    }
}
