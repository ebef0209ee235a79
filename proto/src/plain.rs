//! Tables of plain cells, made from [`EVENTS`] and [`REQUESTS`] when the crate is compiled: for the short paths of
//! `machine/short`. A cell is plain if the state that it leads to is all that it changes in the core.

use crate::request::{Service, Verb};
use crate::state::State;
use crate::table::{self, EVENTS, Fact, Tell};

/// Rows and columns of both tables: a power of two, so that an index needs no check.
const SIDE: usize = 32;
static_assertions::const_assert!(State::COUNT <= SIDE && Fact::COUNT <= SIDE && Verb::COUNT <= SIDE);

/// What a plain event or request leads to. Aligned so that a table's index is a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(4))]
pub(crate) struct Next {
    pub(crate) state: State,
    /// The operation of the state before has ended, and its deadline with it.
    pub(crate) ends: bool,
    /// A request that an event completes, or its deadline.
    pub(crate) waits: bool,
}

impl Next {
    const fn new(before: State, state: State, waits: bool) -> Self {
        Next { state, ends: state as usize != before as usize && table::operation(before).is_some(), waits }
    }
}

static PLAIN_EVENTS: [[Option<Next>; SIDE]; SIDE] = {
    let mut plain = [[None; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < Fact::COUNT {
            if let Tell::Go(next) = EVENTS[row][column]
                && concerns_the_id_alone(Fact::ALL[column])
                // A teardown may answer it with another call.
                && !matches!(next, State::Closing)
            {
                plain[row][column] = Some(Next::new(State::ALL[row], next, false));
            }
            column += 1;
        }
        row += 1;
    }
    plain
};

const fn concerns_the_id_alone(fact: Fact) -> bool {
    !matches!(fact, Fact::ConnectRequest | Fact::MulticastJoin | Fact::MulticastError | Fact::Deadline)
}

/// By state, verb, and service.
static PLAIN_REQUESTS: [[[Option<Next>; 2]; SIDE]; SIDE] = {
    let mut plain = [[[None; 2]; SIDE]; SIDE];
    let mut row = 0;
    while row < State::COUNT {
        let mut column = 0;
        while column < Verb::COUNT {
            let (state, verb) = (State::ALL[row], Verb::ALL[column]);
            plain[row][column][Service::Connected as usize] = plain_request(state, verb, Service::Connected);
            plain[row][column][Service::Datagram as usize] = plain_request(state, verb, Service::Datagram);
            column += 1;
        }
        row += 1;
    }
    plain
};

const fn plain_request(state: State, verb: Verb, service: Service) -> Option<Next> {
    match table::ask(state, verb, service) {
        Ok(next) if is_one_call(verb) => {
            let waits = match table::operation(next) {
                Some(awaited) => awaited as usize == verb as usize,
                None => false,
            };
            Some(Next::new(state, next, waits))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Whether one call of the device is all that a request of this kind does outside the core.
const fn is_one_call(verb: Verb) -> bool {
    match verb {
        Verb::Bind
        | Verb::ResolveAddr
        | Verb::ResolveRoute
        | Verb::Connect
        | Verb::Accept
        | Verb::Reject
        | Verb::Establish
        | Verb::Disconnect
        | Verb::Teardown
        | Verb::Notify
        | Verb::SetTos
        | Verb::ReuseAddr
        | Verb::NoReuseAddr
        | Verb::SetAfOnly
        | Verb::SetAckTimeout
        | Verb::SetEce => true,
        Verb::Listen
        | Verb::AttachQp
        | Verb::DetachQp
        | Verb::GetRequest
        | Verb::Join
        | Verb::Leave
        | Verb::Migrate
        | Verb::Release
        | Verb::Destroy
        | Verb::DestroyNow => false,
    }
}

/// What a plain event leads to. `None`: the event is not plain in this state.
#[inline]
pub(crate) fn event(state: State, fact: Fact) -> Option<&'static Next> {
    PLAIN_EVENTS[state as usize % SIDE][fact as usize % SIDE].as_ref()
}

/// What a plain request leads to. `None`: the request is not plain in this state.
#[inline]
pub(crate) fn request(state: State, verb: Verb, service: Service) -> Option<&'static Next> {
    PLAIN_REQUESTS[state as usize % SIDE][verb as usize % SIDE][service as usize % 2].as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_cell_is_that_of_its_table() {
        let mut plain = 0;
        for state in State::ALL {
            for fact in Fact::ALL {
                if let Some(next) = event(state, fact) {
                    assert_eq!(table::tell(state, fact), Tell::Go(next.state), "{state}: {fact}");
                    let ends = next.state != state && table::operation(state).is_some();
                    assert_eq!((next.ends, next.waits), (ends, false), "{state}: {fact}");
                    plain += 1;
                }
            }
            let both = |verb| [(verb, Service::Connected), (verb, Service::Datagram)];
            for (verb, service) in Verb::ALL.into_iter().flat_map(both) {
                if let Some(next) = request(state, verb, service) {
                    assert_eq!(table::ask(state, verb, service), Ok(next.state), "{state}: {verb}");
                    let ends = next.state != state && table::operation(state).is_some();
                    let waits = table::operation(next.state) == Some(verb);
                    assert_eq!((next.ends, next.waits), (ends, waits), "{state}: {verb}");
                    plain += 1;
                }
            }
        }
        assert!(plain > 250, "{plain} cells");
    }
}
