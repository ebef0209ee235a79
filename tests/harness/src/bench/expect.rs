//! What a bench waits for: events, their absence, states.

use std::ops::Deref;
use std::time::{Duration, Instant};

use cmid_proto::{ChannelKey, CmEvent, Event, EventKind, IdKey, State};

use super::{Bench, SOON, Who};
use crate::failure::{ensure, same};
use crate::{Check, Failure, Lab};

/// An event that nothing is owed for any more.
#[derive(Debug)]
pub struct Acked(pub Event);

impl Deref for Acked {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.0
    }
}

impl<L: Lab> Bench<'_, L> {
    /// The next event of a side's channel is this one. Acked, where acks are explicit.
    pub fn expect(&mut self, who: Who, id: IdKey, kind: CmEvent, status: i32, len: usize) -> Check<Acked> {
        let channel = self.side(who).channel;
        self.expect_on(who, channel, id, kind, status, len)
    }

    /// The next event of this channel is this one.
    pub fn expect_on(
        &mut self,
        who: Who,
        on: ChannelKey,
        id: IdKey,
        kind: CmEvent,
        status: i32,
        len: usize,
    ) -> Check<Acked> {
        let mut event = self.next(who, on, &kind)?;
        let seen = (event.id, event.kind, event.status, event.private_data.len());
        same(self.side(who).name, seen, (id, EventKind::Cm(kind), status, len))?;
        self.ack(who, &mut event)?;
        Ok(Acked(event))
    }

    /// The next event of a side's channel is of this kind, with status 0, on whichever id.
    pub fn expect_any(&mut self, who: Who, kind: CmEvent) -> Check<Acked> {
        let channel = self.side(who).channel;
        let mut event = self.next(who, channel, &kind)?;
        same(self.side(who).name, (event.kind, event.status), (EventKind::Cm(kind), 0))?;
        self.ack(who, &mut event)?;
        Ok(Acked(event))
    }

    /// The next event of a channel, not acked.
    pub fn next(&mut self, who: Who, on: ChannelKey, awaited: &dyn std::fmt::Debug) -> Check<Event> {
        let patience = self.patience;
        let end = Instant::now() + patience;
        // Who waits for minutes has company, on a machine that is slow enough.
        let moment = Duration::from_millis(if patience > SOON { 200 } else { 5 });
        loop {
            if let Some(event) = self.side(who).drive().next_event(on) {
                return Ok(event);
            }
            let name = self.side(who).name;
            ensure(Instant::now() < end, || format!("{name}: no event in {patience:?}, expected {awaited:?}"))?;
            self.pump_for(who, moment)?;
        }
    }

    /// Gives the receipt of an event back, if it has one.
    pub fn ack(&mut self, who: Who, event: &mut Event) -> Check {
        match event.receipt.take() {
            Some(receipt) => Ok(self.side(who).drive().ack(receipt)?),
            None => Ok(()),
        }
    }

    /// No event comes on a side's channel for a while.
    pub fn quiet(&mut self, who: Who) -> Check {
        let channel = self.side(who).channel;
        let span = self.lab.quiet();
        self.quiet_on(who, channel, span)
    }

    /// No event comes on this channel for this long.
    pub fn quiet_on(&mut self, who: Who, on: ChannelKey, span: Duration) -> Check {
        let end = Instant::now() + span;
        loop {
            if let Some(event) = self.side(who).drive().next_event(on) {
                let name = self.side(who).name;
                return Err(Failure(format!("{name}: {} of {} where nothing was expected", event.kind, event.id)));
            }
            if Instant::now() >= end {
                return Ok(());
            }
            self.pump(Duration::from_millis(20))?;
        }
    }

    /// Waits for an id to be in a state.
    pub fn until(&mut self, who: Who, id: IdKey, state: State) -> Check {
        let end = Instant::now() + SOON;
        while self.side(who).drive().core().state(id) != Some(state) {
            let seen = self.side(who).drive().core().state(id);
            ensure(Instant::now() < end, || format!("{id} is {seen:?}, expected {state:?}"))?;
            self.pump(Duration::from_millis(5))?;
        }
        Ok(())
    }
}
