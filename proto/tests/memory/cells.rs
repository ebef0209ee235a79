//! Every reachable region, with every possible input, against the table.

use std::collections::{BTreeSet, HashSet, VecDeque};

use cmid_proto::memory::rules::{Cell, Input, MR};
use cmid_proto::memory::{
    Change, Ended, Fallback, MemoryFault, MemoryOutcome, MemoryReason, MemoryRefused, MemoryTarget, MrState, Policy,
    Provider, Reply, Traffic,
};
use cmid_proto::{Errno, ErrorWith};

use crate::small::{Bytes, Call, KEYS, Region, Use, changes, policies, registering};

/// A region and the state of the test: the device's registrations, the policy, whether the device is removed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RegionInState {
    region: Region,
    handles: Vec<u8>,
    policy: Policy,
    removed: bool,
    /// Whether the current change has a new buffer and a new PD, and whether such ones are kept because the device may
    /// refer to them.
    moves: [bool; 2],
    doubt: [bool; 2],
}

/// An input of a region.
#[derive(Clone, Debug)]
enum Step {
    Reregister(Change<Use, Bytes>, Policy),
    Deregister,
    Removal,
    Outcome(MemoryOutcome<u8>),
}

/// Results of `ibv_rereg_mr`, one of each kind.
const REPLIES: [(i32, Errno); 6] = [
    (0, Errno(0)),
    (-1, Errno::EINVAL),
    (-3, Errno::ENOMEM),
    (-4, Errno::EOPNOTSUPP),
    (-4, Errno::EIO),
    (-7, Errno::EIO),
];

impl RegionInState {
    fn first() -> Self {
        RegionInState {
            region: registering(),
            handles: Vec::new(),
            policy: Policy::default(),
            removed: false,
            moves: [false; 2],
            doubt: [false; 2],
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Deregister, Step::Removal];
        for change in changes(&self.region) {
            steps.extend(policies().map(|policy| Step::Reregister(change.clone(), policy)));
        }
        // A handle that is not in use.
        let handle = (0..3).find(|handle| !self.handles.contains(handle)).unwrap();
        let mut outcomes =
            vec![MemoryOutcome::Registered(Ok((handle, KEYS))), MemoryOutcome::Registered(Err(Errno::ENOMEM))];
        outcomes.extend(REPLIES.map(|(code, errno)| MemoryOutcome::Reregistered(Reply { code, errno, keys: KEYS })));
        let results = [Ok(()), Err(Errno::EBUSY), Err(Errno::EIO)];
        outcomes.extend(results.map(MemoryOutcome::Deregistered));
        steps.extend(outcomes.into_iter().map(Step::Outcome));
        steps
    }

    /// The table column of a step.
    fn input(&self, step: &Step) -> Input {
        let checks = self.policy.provider == Provider::ChecksFirst;
        let falls_back = self.policy.fallback == Fallback::Anew && !self.removed;
        let two = self.region.state() == MrState::Discarding && self.handles.len() == 2;
        match step {
            Step::Reregister(..) => Input::Reregister,
            Step::Deregister => Input::Deregister,
            Step::Removal => Input::Removal,
            Step::Outcome(MemoryOutcome::Registered(Ok(_))) => Input::Made,
            Step::Outcome(MemoryOutcome::Registered(Err(_))) => Input::NotMade,
            Step::Outcome(MemoryOutcome::Reregistered(reply)) => match (reply.code, reply.errno) {
                (0 | -3, _) => Input::New,
                (-4, Errno::EOPNOTSUPP) if falls_back => Input::Unsupported,
                (-1, _) | (-4, Errno::EOPNOTSUPP) => Input::Old,
                (-4, _) if checks => Input::Old,
                _ => Input::Neither,
            },
            Step::Outcome(MemoryOutcome::Deregistered(Ok(()))) if two => Input::OneEnded,
            Step::Outcome(MemoryOutcome::Deregistered(Ok(()))) => Input::Ended,
            Step::Outcome(MemoryOutcome::Deregistered(Err(Errno::EBUSY))) => Input::Kept,
            Step::Outcome(MemoryOutcome::Deregistered(Err(_))) => Input::Lost,
        }
    }

    /// Makes the step. Returns the reason if the region refuses it, or `None` for a fault; a refused change comes
    /// back unchanged.
    fn take(&mut self, step: Step) -> Result<(), Option<MemoryReason>> {
        let state = self.region.state();
        let refused = |refused: MemoryRefused| {
            assert_eq!(refused.target, MemoryTarget::Mr(Some(state)));
            Some(refused.reason)
        };
        match step {
            Step::Reregister(change, policy) => {
                self.region.reregister(change.clone(), policy, Traffic::Quiet).map_err(
                    |ErrorWith { given: back, error: reason }| {
                        assert_eq!(back, change);
                        refused(reason)
                    },
                )?;
                self.policy = policy;
                self.moves = [change.buffer.is_some(), change.pd.is_some()];
            }
            Step::Deregister => self.region.deregister(Traffic::Quiet).map_err(refused)?,
            Step::Removal => {
                self.region.handle_removal();
                self.removed = true;
            }
            Step::Outcome(outcome) => {
                let input = self.input(&Step::Outcome(outcome));
                let ends = match self.region.call() {
                    Some(Call::Deregister { handle }) => Some(*handle),
                    _ => None,
                };
                self.region.handle_outcome(outcome).map(drop).map_err(|fault: MemoryFault| {
                    assert_eq!(fault.target, MemoryTarget::Mr(Some(state)));
                    None
                })?;
                match outcome {
                    // The library has called the provider, which has the operation.
                    MemoryOutcome::Reregistered(Reply { code: -4 | -5, errno, .. }) if errno != Errno::EOPNOTSUPP => {
                        let may_refer = self.moves.map(|moves| moves && input == Input::Old);
                        self.doubt = [self.doubt[0] | may_refer[0], self.doubt[1] | may_refer[1]];
                    }
                    MemoryOutcome::Registered(Ok((handle, _))) => self.handles.push(handle),
                    MemoryOutcome::Deregistered(Ok(())) => {
                        self.handles.retain(|&own| Some(own) != ends);
                        // The registration that may belong to the other PD has ended.
                        self.doubt[1] &= state != MrState::Retiring;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Asserts the conditions that hold for every region.
    fn check(&self) {
        let (region, state) = (&self.region, self.region.state());
        let at_rest = matches!(state, MrState::Registered | MrState::Unusable | MrState::Gone);
        assert_eq!(region.call().is_none(), at_rest, "{region:?}");
        assert_eq!(state == MrState::Gone, self.handles.is_empty() && state != MrState::Registering, "{region:?}");
        let usable = state == MrState::Registered;
        assert_eq!(
            (region.keys().is_some(), region.pd().is_some(), region.access().is_some()),
            (usable, usable, usable)
        );
        assert!(!(self.removed && usable), "{region:?}");
        assert_eq!(region.in_doubt().is_some(), self.doubt[0] && state != MrState::Gone, "{region:?}");
        if let Some(Call::Deregister { handle } | Call::Reregister { handle, .. }) = region.call() {
            assert!(self.handles.contains(handle), "{region:?} names a registration that the device does not have");
        }
        // No deadlock: a region at rest can be deregistered.
        if at_rest && state != MrState::Gone {
            region.clone().deregister(Traffic::Quiet).unwrap();
        }
    }

    /// Asserts that, if the device's calls succeed, the region and its registrations are gone within two requests.
    fn ends(&self) {
        let mut region_in_state = self.clone();
        for _ in 0..2 {
            for _ in 0..4 {
                let outcome = match region_in_state.region.call() {
                    None => break,
                    Some(Call::Register { .. }) => MemoryOutcome::Registered(Ok((9, KEYS))),
                    Some(Call::Reregister { .. }) => {
                        MemoryOutcome::Reregistered(Reply { code: 0, errno: Errno(0), keys: KEYS })
                    }
                    Some(Call::Deregister { .. }) => MemoryOutcome::Deregistered(Ok(())),
                };
                region_in_state.take(Step::Outcome(outcome)).unwrap();
            }
            if region_in_state.region.state() != MrState::Gone {
                region_in_state.take(Step::Deregister).unwrap();
            }
        }
        assert_eq!(region_in_state.region.state(), MrState::Gone, "from {:?}", self.region);
        assert!(region_in_state.handles.is_empty(), "from {:?}", self.region);
    }
}

/// Makes the step and compares the result with the table. Returns the region afterwards and the cell.
fn compare(region_in_state: &RegionInState, step: Step) -> (RegionInState, (MrState, Input)) {
    let (state, input) = (region_in_state.region.state(), region_in_state.input(&step));
    let mut after = region_in_state.clone();
    let case = format!("{step:?} of {:?}", region_in_state.region);
    let [memory, pd] = region_in_state.doubt;
    let in_doubt = matches!(&step, Step::Reregister(change, _)
        if memory && change.buffer.is_some() || pd && change.pd.is_some());
    let result = after.take(step);
    match MR[state.index()][input.index()] {
        Cell::Go(_) if in_doubt => {
            assert_eq!(result, Err(Some(MemoryReason::InDoubt)), "{case}");
            assert!(after == *region_in_state, "{case} was refused and changed something");
        }
        Cell::Go(next) => {
            assert_eq!(result, Ok(()), "{case}");
            let next = if after.removed && next == MrState::Registered { MrState::Unusable } else { next };
            assert_eq!(after.region.state(), next, "{case}");
        }
        Cell::Refuse(reason) => {
            let gone = region_in_state.removed && reason == MemoryReason::OnlyDeregister;
            assert_eq!(result, Err(Some(if gone { MemoryReason::DeviceGone } else { reason })), "{case}");
            assert!(after == *region_in_state, "{case} was refused and changed something");
        }
        Cell::Fault => {
            assert_eq!(result, Err(None), "{case}");
            assert!(after == *region_in_state, "{case} was a fault and changed something");
        }
    }
    (after, (state, input))
}

/// Cells that are not reachable. `OneEnded` needs two registrations; a fallback needs the policy of a
/// re-registration.
fn unreachable() -> BTreeSet<(MrState, Input)> {
    let one_of_two = MrState::ALL.into_iter().filter(|&state| state != MrState::Discarding);
    one_of_two.map(|state| (state, Input::OneEnded)).chain([(MrState::Registering, Input::Unsupported)]).collect()
}

#[test]
fn every_region_that_can_be_obeys_the_table_and_can_be_ended() {
    let mut seen = HashSet::from([RegionInState::first()]);
    let mut next = VecDeque::from([RegionInState::first()]);
    let mut cells = BTreeSet::new();
    while let Some(region_in_state) = next.pop_front() {
        region_in_state.check();
        region_in_state.ends();
        for step in region_in_state.steps() {
            let (after, cell) = compare(&region_in_state, step);
            cells.insert(cell);
            if seen.insert(after.clone()) {
                next.push_back(after);
            }
        }
    }
    let all: BTreeSet<_> = MrState::ALL.into_iter().flat_map(|state| Input::ALL.map(|input| (state, input))).collect();
    let left: BTreeSet<_> = all.difference(&cells).copied().collect();
    assert_eq!(left, unreachable());
    for (state, input) in left {
        assert_eq!(MR[state.index()][input.index()], Cell::Fault);
    }
}

#[test]
fn a_run_returns_the_end_of_a_request_and_nothing_otherwise() {
    let mut region = registering();
    assert_eq!(region.handle_outcome(MemoryOutcome::Registered(Ok((0, KEYS)))), Ok(Some(Ended::Registered(KEYS))));
    assert_eq!(region.run(|call| panic!("{call:?}")), Ok(None), "there was nothing to do");
    let mut region = registering();
    let ended = region.run(|_| MemoryOutcome::Registered(Err(Errno::ENOMEM)));
    assert_eq!(ended, Ok(Some(Ended::NotRegistered(Errno::ENOMEM, Bytes(1)))));
    assert_eq!((region.state(), region.buffer()), (MrState::Gone, None));
}

#[test]
fn the_outcome_of_another_call_is_a_fault_and_the_call_is_still_to_be_made() {
    let mut region = registering();
    let before = region.clone();
    let fault = region.run(|_| MemoryOutcome::Deregistered(Ok(()))).unwrap_err();
    assert_eq!(fault.to_string(), "an outcome of deregister for an MR while registering");
    assert_eq!(region, before);
    assert!(matches!(region.call(), Some(Call::Register { .. })));
}
