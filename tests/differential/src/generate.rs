//! Programs from bytes, and their bytes from seeds.

use cmid_sim::Flavour;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::address::Numbers;
use crate::data_step::DataStep;
use crate::program::{Action, IdCall, Network, Program, Step};
use crate::simulated::{Schedule, schedules, simulate};
use crate::{generate_calls, generate_data};

/// Numbers for runs that are not compared.
pub const NUMBERS: Numbers = Numbers { port: 20_000, qp_num: 0x40_0000, link: 2 };

/// The bytes of a part of a program. What the others do changes little when they are removed.
type Part = [u8; 32];

/// The bytes of a program: of its random steps, of its listeners, and of what is decided once.
pub type Bytes = (Vec<Part>, Vec<Part>, Part);

/// The kinds of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Calls of connection management.
    Calls(Network),
    /// Steps of the data path.
    Data(Network),
}

impl Kind {
    /// The program of a seed.
    #[must_use]
    pub fn program(self, seed: u64) -> Program {
        self.program_of(seed, &self.tree(seed).current())
    }

    /// The bytes of a seed, and all that are smaller.
    #[must_use]
    pub fn tree(self, seed: u64) -> impl ValueTree<Value = Bytes> {
        let steps_max = match self {
            Kind::Calls(_) => 96,
            // In a longer program a request without an answer may run out of retries.
            Kind::Data(_) => 60,
        };
        let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
        let parts = |count| prop::collection::vec(any::<Part>(), count);
        let bytes = (parts(0..steps_max), parts(1..3), any::<Part>());
        bytes.new_tree(&mut runner).unwrap_or_else(|reason| panic!("any bytes are allowed: {reason}"))
    }

    /// The program of these bytes, named by the seed that they are from.
    #[must_use]
    pub fn program_of(self, seed: u64, bytes: &Bytes) -> Program {
        tame(match self {
            Kind::Calls(network) => generate_calls::program(network, seed, bytes),
            Kind::Data(network) => generate_data::program(network, seed, bytes),
        })
    }
}

/// The program of a seed, with calls for soft-RoCE.
#[must_use]
pub fn program(seed: u64) -> Program {
    Kind::Calls(Network::Roce).program(seed)
}

/// Whether no call in the program blocks in the kernel, under any schedule: a destroy for 70 seconds on InfiniBand
/// (semantics 3.3), the end of an attempt to connect for 10 seconds on iWARP (semantics 16.2). And whether no window is
/// invalidated that is not bound (hazard P43).
#[must_use]
pub fn is_safe(program: &Program) -> bool {
    stalls(program) == 0
}

fn stalls(program: &Program) -> u64 {
    let run = |schedule: &Schedule| simulate(program, NUMBERS, Flavour::Linux6_12, schedule).stalls;
    schedules(program).iter().map(run).sum()
}

/// Removes the steps that make a call block: answers on InfiniBand, attempts to connect and their ends on iWARP. And the
/// sends that invalidate a window that is not bound, and the batches of iWARP of which a request ends the connection.
fn tame(mut program: Program) -> Program {
    let mut left = stalls(&program);
    while left > 0 {
        let answers = |step: &Step| match program.network {
            Network::Roce => {
                matches!(step.action, Action::On(_, IdCall::Accept(_) | IdCall::Reject { .. } | IdCall::Establish))
                    || matches!(step.action, Action::On(_, IdCall::Data(step)) if step.sends_invalidation())
            }
            Network::Iwarp => matches!(
                step.action,
                Action::On(
                    _,
                    IdCall::Connect(_)
                        | IdCall::Destroy
                        | IdCall::Disconnect
                        | IdCall::Teardown
                        | IdCall::Data(DataStep::PostAll { .. })
                )
            ),
        };
        let places: Vec<usize> = (0..program.steps.len()).filter(|&at| answers(&program.steps[at])).collect();
        let without = |at: usize| {
            let mut less = program.clone();
            let gone = less.steps.remove(at);
            if let Some(next) = less.steps.get_mut(at) {
                next.races &= gone.races;
            }
            (stalls(&less), less)
        };
        // Removes the answer that causes most of it. (If no single one does, removes the last one.)
        let better = places.iter().map(|&at| without(at)).min_by_key(|(stalls, _)| *stalls);
        let Some((stalls, less)) = better else { break };
        (left, program) = (stalls, less);
    }
    program
}
