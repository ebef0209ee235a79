//! Every reachable PD, with every possible input, against the table.

use std::collections::{BTreeSet, HashSet, VecDeque};

use cmid_proto::Errno;
use cmid_proto::memory::rules::{Cell, PD, PdInput};
use cmid_proto::memory::{Domain, MemoryFault, MemoryReason, MemoryRefused, MemoryRequest, MemoryTarget, PdState};

/// The number of uses to try; more behave the same.
const USES: u32 = 2;

/// Applies an input. Returns `Err(None)` for a fault.
fn take(domain: &mut Domain, input: PdInput) -> Result<(), Option<MemoryRefused>> {
    let fault = |fault: MemoryFault| {
        assert!(matches!(fault.target, MemoryTarget::Pd(_)));
        None
    };
    match input {
        PdInput::Use => domain.acquire().map_err(Some),
        PdInput::Dealloc => domain.dealloc().map_err(Some),
        PdInput::Removal => {
            domain.handle_removal();
            Ok(())
        }
        PdInput::Done => domain.handle_outcome(Ok(())).map_err(fault),
        PdInput::Failed => domain.handle_outcome(Err(Errno::EBUSY)).map_err(fault),
    }
}

fn compare(domain: &Domain, removed: bool, input: PdInput) -> Domain {
    let (state, users) = (domain.state(), domain.users());
    let mut after = domain.clone();
    let result = take(&mut after, input);
    let refused = |reason| {
        let request = if input == PdInput::Use { MemoryRequest::Use } else { MemoryRequest::Dealloc };
        Err(Some(MemoryRefused { request, target: MemoryTarget::Pd(state), reason }))
    };
    match PD[state.index()][input.index()] {
        Cell::Go(_) if input == PdInput::Dealloc && users > 0 => {
            assert_eq!(result, refused(MemoryReason::InUse(users)))
        }
        Cell::Go(next) => {
            assert_eq!(result, Ok(()), "{input} while {state}");
            let next = if removed && next == PdState::Live { PdState::Stranded } else { next };
            assert_eq!(after.state(), next, "{input} while {state}");
            assert_eq!(after.users(), users + u32::from(input == PdInput::Use), "{input} while {state}");
            return after;
        }
        Cell::Refuse(reason) => assert_eq!(result, refused(reason), "{input} while {state}"),
        Cell::Fault => assert_eq!(result, Err(None), "{input} while {state}"),
    }
    assert_eq!(&after, domain, "{input} while {state} changed something");
    after
}

/// Asserts that the domain can be deallocated without users if the device's calls succeed.
fn ends(mut domain: Domain) {
    for _ in 0..domain.users() {
        domain.release();
    }
    if matches!(domain.state(), PdState::Allocating | PdState::Deallocating) {
        domain.handle_outcome(Ok(())).unwrap();
    }
    if domain.state() != PdState::Gone {
        domain.dealloc().unwrap();
        domain.handle_outcome(Ok(())).unwrap();
    }
    assert_eq!(domain.state(), PdState::Gone);
}

#[test]
fn every_domain_that_can_be_obeys_the_table_and_can_be_ended() {
    let first = (Domain::alloc(), false);
    let mut seen = HashSet::from([first.clone()]);
    let mut next = VecDeque::from([first]);
    let mut cells = BTreeSet::new();
    while let Some((domain, removed)) = next.pop_front() {
        ends(domain.clone());
        let mut after: Vec<_> = PdInput::ALL
            .into_iter()
            .map(|input| {
                cells.insert((domain.state(), input));
                (compare(&domain, removed, input), removed || input == PdInput::Removal)
            })
            .collect();
        if domain.users() > 0 {
            let mut released = domain.clone();
            released.release();
            assert_eq!((released.users(), released.state()), (domain.users() - 1, domain.state()));
            after.push((released, removed));
        }
        next.extend(
            after
                .into_iter()
                .filter(|region_in_state| region_in_state.0.users() <= USES && seen.insert(region_in_state.clone())),
        );
    }
    assert_eq!(cells.len(), PdState::COUNT * PdInput::COUNT, "a cell was never reached");
}

#[test]
fn a_use_is_shared_even_when_nothing_new_can_be_made() {
    let mut domain = Domain::alloc();
    domain.handle_outcome(Ok(())).unwrap();
    domain.acquire().unwrap();
    domain.handle_removal();
    assert_eq!(domain.acquire().unwrap_err().reason, MemoryReason::DeviceGone);
    domain.share();
    assert_eq!((domain.users(), domain.dealloc().unwrap_err().reason), (2, MemoryReason::InUse(2)));
}

#[test]
fn what_is_released_once_too_often_frees_nothing() {
    let mut domain = Domain::alloc();
    domain.handle_outcome(Ok(())).unwrap();
    domain.release();
    assert_eq!(domain.users(), 0);
    domain.acquire().unwrap();
    assert_eq!(domain.dealloc().unwrap_err().reason, MemoryReason::InUse(1));
}
