//! Short histories of clients in simulated worlds are linearizable.

use std::time::Duration;

use cmid_mio::sim::{Config, World, check};
use replog::protocol::Index;
use replog::world::{Done, Size, run};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// A log that one client at a time appends to. An append returns a larger index than each earlier append.
#[derive(Clone, Debug, Default)]
struct Log {
    last: Index,
}

impl SequentialSpec for Log {
    type Op = ();
    type Ret = Index;

    fn invoke(&mut self, (): &()) -> Index {
        self.last += 1;
        self.last
    }

    /// Indexes are not consecutive, because empty records have indexes too.
    fn is_valid_step(&mut self, (): &(), index: &Index) -> bool {
        let follows = *index > self.last;
        self.last = *index;
        follows
    }
}

/// Whether the history has an order of the appends, one after the other, that agrees with their times.
fn is_linearizable(history: &[Done]) -> bool {
    let mut steps: Vec<(Duration, bool, &Done)> =
        history.iter().flat_map(|done| [(done.invoked, false, done), (done.returned, true, done)]).collect();
    steps.sort_by_key(|&(at, returns, done)| (at, returns, done.index));
    let mut tester = LinearizabilityTester::new(Log::default());
    for (_, returns, done) in steps {
        let client = done.request.client;
        let recorded = if returns { tester.on_return(client, done.index) } else { tester.on_invoke(client, ()) };
        recorded.expect("a client has one request at a time");
    }
    tester.is_consistent()
}

const SIZE: Size = Size { replicas: 3, clients: 3, records: 6, faults: Duration::from_secs(2), fences: true };

#[test]
fn histories_of_eighteen_appends_are_linearizable() {
    check(0..10, |world| {
        let history = run(world, SIZE);
        assert!(history.len() == 18 && is_linearizable(&history), "{history:#?}");
    });
}

#[test]
fn a_swapped_order_is_not_linearizable() {
    let mut history = run(&mut World::new(&Config::default()), SIZE);
    let (first, last) = (history[0].index, history[17].index);
    (history[0].index, history[17].index) = (last, first);
    assert!(!is_linearizable(&history));
}
