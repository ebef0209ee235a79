//! The search through a world, and its report.

use core::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, DiscoveryClassification, Expectation, HasDiscoveries, Model};

use crate::connections::Connections;

/// The result of a search through all states.
#[derive(Clone, Debug)]
pub struct Report {
    /// The world.
    pub name: &'static str,
    /// The subject of the check.
    pub target: &'static str,
    /// The number of states.
    pub states: usize,
    /// The number of transitions.
    pub steps: usize,
    /// The distance of the farthest state, in steps.
    pub depth: usize,
    /// The duration of the search.
    pub time: Duration,
    /// Violated properties: the reason, and the path.
    pub wrong: Vec<String>,
    /// Witnesses that did not occur.
    pub missing: Vec<&'static str>,
}

/// Visits every state; stops at a violated invariant. Deterministic with one thread.
pub fn search(model: Connections) -> Report {
    let start = Instant::now();
    let (name, target) = (model.scene.name, model.scene.target);
    let found = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut wrong = Vec::new();
    let discoveries = found.discoveries();
    for (property, path) in &discoveries {
        if matches!(found.discovery_classification(property), DiscoveryClassification::Counterexample) {
            let reason = Connections::explain(path.last_state());
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
    /// Whether all properties hold and all witnesses occurred.
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
