//! A request, its call, and its outcome.

use std::hint::black_box;

use cmid_proto::{CmOption, IdKey, Request, State, Time};

use super::case::Case;
use super::life::{LATER, lead_to_route};
use crate::level::Level;
use crate::prepared::Prepared;
use crate::requests::connect;

/// A request that changes no state (`rdma_set_option`).
#[derive(Debug)]
pub struct SetOption {
    /// Calls made before the step.
    made: u64,
}

impl<L: Level> Case<L> for SetOption {
    type Input = IdKey;
    type Output = ();

    fn new(_: &mut Prepared<L>) -> Self {
        SetOption { made: 0 }
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> IdKey {
        self.made = prepared.level.made();
        prepared.choose()
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, id: IdKey) {
        let request = Request::SetOption { option: CmOption::Tos(black_box(1)) };
        prepared.level.request(id, request, Time::NEVER);
    }

    fn check(&mut self, prepared: &mut Prepared<L>, (): ()) {
        assert_eq!(prepared.level.made(), self.made + 1, "one call");
    }
}

/// A request with private data (56 bytes), a change of state, and a deadline.
#[derive(Debug)]
pub struct Connect;

impl<L: Level> Case<L> for Connect {
    type Input = IdKey;
    type Output = IdKey;

    fn new(_: &mut Prepared<L>) -> Self {
        Connect
    }

    fn prepare(&mut self, prepared: &mut Prepared<L>) -> IdKey {
        let id = prepared.choose();
        lead_to_route(prepared, id);
        id
    }

    #[inline(always)]
    fn step(&mut self, prepared: &mut Prepared<L>, id: IdKey) -> IdKey {
        prepared.level.request(id, connect(), LATER);
        id
    }

    fn check(&mut self, prepared: &mut Prepared<L>, id: IdKey) {
        assert_eq!((prepared.state(id), prepared.level.core().poll_timeout()), (State::Connecting, Some((LATER, id))));
        prepared.renew(id);
    }
}
