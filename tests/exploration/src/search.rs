//! The search through a world, and what it says.

use core::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, DiscoveryClassification, Expectation, HasDiscoveries, Model};

/// A model that can say what is wrong with a state.
pub trait Searched: Model {
    /// What the world is called.
    fn name(&self) -> &'static str;

    /// What the world is about.
    fn target(&self) -> &'static str;

    /// What is wrong with a state that a property does not hold in.
    fn explain(&self, state: &Self::State) -> String;
}

/// What a search through all states has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The world.
    pub name: &'static str,
    /// What it is about.
    pub target: &'static str,
    /// How many states there are.
    pub states: usize,
    /// How many steps there are from one of them to another.
    pub steps: usize,
    /// How many steps it takes to the farthest state.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// What should hold and does not: why, and how to get there.
    pub wrong: Vec<String>,
    /// What should turn up and does not.
    pub missing: Vec<&'static str>,
}

/// Visits every state, unless one breaks a law. With one thread it goes the same way each time.
pub fn search<M>(model: M) -> Report
where
    M: Searched + Send + Sync + 'static,
    M::State: Clone + core::hash::Hash + PartialEq + Send + Sync,
    M::Action: Clone + PartialEq + fmt::Debug,
{
    let start = Instant::now();
    let (name, target) = (model.name(), model.target());
    let found = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut wrong = Vec::new();
    let discoveries = found.discoveries();
    for (property, path) in &discoveries {
        if matches!(found.discovery_classification(property), DiscoveryClassification::Counterexample) {
            let reason = found.model().explain(path.last_state());
            let steps: Vec<_> = path.clone().into_actions().iter().map(|action| format!("  {action:?}\n")).collect();
            wrong.push(format!("not so: {property}\n{}{reason}", steps.concat()));
        }
    }
    let asked = found.model().properties().into_iter().filter(|it| it.expectation == Expectation::Sometimes);
    let missing = asked.map(|it| it.name).filter(|name| !discoveries.contains_key(name)).collect();
    Report {
        name,
        target,
        states: found.unique_state_count(),
        steps: found.state_count(),
        depth: found.max_depth(),
        time: start.elapsed(),
        wrong,
        missing,
    }
}

impl Report {
    /// Whether everything holds and everything has turned up.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<20} {:>8} states {:>9} steps  depth {:>3} {:>7.1} s  {}",
            self.name,
            self.states,
            self.steps,
            self.depth,
            self.time.as_secs_f32(),
            self.target
        )?;
        self.wrong.iter().try_for_each(|wrong| write!(f, "\n{wrong}"))?;
        if self.missing.is_empty() { Ok(()) } else { write!(f, "\nnever seen: {}", self.missing.join(", ")) }
    }
}
