//! Counts what the programs have reached: calls by result, events by status, and the goals.

use std::collections::BTreeMap;
use std::fmt;

use crate::judge::Run;
use crate::program::{Level, Network, Program};
use crate::trace::Seen;

/// Counts of many runs.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    calls: BTreeMap<(Level, &'static str), BTreeMap<String, u64>>,
    events: BTreeMap<(Level, String), BTreeMap<i32, u64>>,
    reached: BTreeMap<&'static str, u64>,
    network: Network,
}

/// The goals that a campaign on soft-RoCE must reach: the name, and the event or call that shows it.
const GOALS: &[(&str, Goal)] = &[
    ("a connection, at the device", Goal::Event(Level::Device, "ESTABLISHED", 0)),
    ("a connection, through the core", Goal::Event(Level::Core, "ESTABLISHED", 0)),
    ("a request, at the device", Goal::Event(Level::Device, "CONNECT_REQUEST", 0)),
    ("a request, through the core", Goal::Event(Level::Core, "CONNECT_REQUEST", 0)),
    ("an answer without a QP", Goal::Event(Level::Device, "CONNECT_RESPONSE", 0)),
    ("rejected by the peer", Goal::Event(Level::Device, "REJECTED", 28)),
    ("rejected by the peer, through the core", Goal::Event(Level::Core, "REJECTED", 28)),
    ("rejected, nobody listens", Goal::Event(Level::Device, "REJECTED", 8)),
    ("rejected, stale", Goal::Event(Level::Device, "REJECTED", 10)),
    ("a disconnection", Goal::Event(Level::Device, "DISCONNECTED", 0)),
    ("a time wait that ended", Goal::Event(Level::Device, "TIMEWAIT_EXIT", 0)),
    ("a lookup refused", Goal::Event(Level::Device, "UNREACHABLE", 2)),
    ("a lookup of nobody", Goal::Event(Level::Device, "UNREACHABLE", 1)),
    ("an address without a device", Goal::Event(Level::Device, "ADDR_ERROR", -19)),
    ("a group joined", Goal::Event(Level::Device, "MULTICAST_JOIN", 0)),
    ("a migration, at the device", Goal::Call(Level::Device, "migrate_id", "ok")),
    ("a migration, through the core", Goal::Call(Level::Core, "migrate_id", "ok")),
    ("a migration that waits for acks", Goal::Call(Level::Core, "migrate_id later", "ok")),
    ("a destruction that waits for acks", Goal::Call(Level::Core, "destroy_id later", "ok")),
    ("an accept after the peer has gone", Goal::Call(Level::Device, "accept", "EINVAL")),
    ("a listener moved by the core", Goal::Call(Level::Core, "listen", "ok")),
    ("a QP on an id", Goal::Call(Level::Device, "create_qp", "ok")),
    ("established already", Goal::Call(Level::Device, "notify", "EISCONN")),
];

/// The goals of a campaign on soft-iWARP.
const GOALS_ON_IWARP: &[(&str, Goal)] = &[
    ("a connection, at the device", Goal::Event(Level::Device, "ESTABLISHED", 0)),
    ("a connection, through the core", Goal::Event(Level::Core, "ESTABLISHED", 0)),
    ("a request, at the device", Goal::Event(Level::Device, "CONNECT_REQUEST", 0)),
    ("a request, through the core", Goal::Event(Level::Core, "CONNECT_REQUEST", 0)),
    ("rejected by the peer", Goal::Event(Level::Device, "REJECTED", -104)),
    ("rejected by the peer, through the core", Goal::Event(Level::Core, "REJECTED", -104)),
    ("nobody listens", Goal::Call(Level::Device, "connect", "ECONNREFUSED")),
    ("a connect without a QP", Goal::Call(Level::Device, "connect", "EINVAL")),
    ("a disconnection", Goal::Event(Level::Device, "DISCONNECTED", 0)),
    ("a disconnection, through the core", Goal::Event(Level::Core, "DISCONNECTED", 0)),
    ("an address without a device", Goal::Event(Level::Device, "ADDR_ERROR", -19)),
    ("a migration, at the device", Goal::Call(Level::Device, "migrate_id", "ok")),
    ("a migration, through the core", Goal::Call(Level::Core, "migrate_id", "ok")),
    ("a migration that waits for acks", Goal::Call(Level::Core, "migrate_id later", "ok")),
    ("a destruction that waits for acks", Goal::Call(Level::Core, "destroy_id later", "ok")),
    ("a listener moved by the core", Goal::Call(Level::Core, "listen", "ok")),
    ("a QP on an id", Goal::Call(Level::Device, "create_qp", "ok")),
];

/// Reached by a migration to a channel that becomes readable by it.
const MOVED: &str = "a migration with unread events in the kernel";
/// Reached by a group of steps without a pause.
const RACED: &str = "calls at once on both sides";
/// Reached by a synchronous request that ended.
const SYNCHRONOUS: &str = "a synchronous request that ended";

/// The event or call that shows that a goal was reached.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Event(Level, &'static str, i32),
    Call(Level, &'static str, &'static str),
}

const fn goals(network: Network) -> &'static [(&'static str, Goal)] {
    match network {
        Network::Roce => GOALS,
        Network::Iwarp => GOALS_ON_IWARP,
    }
}

impl Coverage {
    /// Counts a run.
    pub fn add(&mut self, program: &Program, run: &Run) {
        let mut mine = Coverage::default();
        let level = program.level;
        for line in run.trace.a.iter().chain(&run.trace.b) {
            match &line.what {
                // A call of the core to the device.
                Seen::Call { text, .. } if text.starts_with("device: ") => {}
                Seen::Call { name, result, .. } => mine.note_call(level, name, result),
                // An event that the core has read is noted again when it is delivered to the application.
                Seen::Event { channel, .. } if *channel >= crate::recorder::BELOW => {}
                Seen::Event { kind, status, .. } => {
                    *mine.events.entry((level, kind.clone())).or_default().entry(*status).or_default() += 1;
                }
                Seen::State(text) if text.starts_with("sync") && text.contains("None Some(Ok") => {
                    mine.reached.insert(SYNCHRONOUS, 1);
                }
                Seen::State(_) | Seen::Broken(_) => {}
            }
        }
        self.network = program.network;
        for &(name, goal) in goals(program.network) {
            let reached = match goal {
                Goal::Event(level, kind, status) => {
                    mine.events.get(&(level, kind.to_owned())).is_some_and(|by| by.contains_key(&status))
                }
                Goal::Call(level, call, result) => {
                    mine.calls.get(&(level, call)).is_some_and(|by| by.contains_key(result))
                }
            };
            mine.reached.entry(name).or_insert(u64::from(reached));
        }
        mine.reached.insert(MOVED, u64::from(run.observed.moved_unread > 0));
        mine.reached.insert(RACED, u64::from(program.boundaries() > 0));
        mine.reached.entry(SYNCHRONOUS).or_insert(0);
        self.merge(mine);
    }

    fn note_call(&mut self, level: Level, name: &'static str, result: &str) {
        // The core's error contains the id, its state, and last the reason.
        let reason = result.rsplit(": ").next().unwrap_or(result);
        let result = if result.starts_with("refused: ") { format!("refused ({reason})") } else { reason.to_owned() };
        *self.calls.entry((level, name)).or_default().entry(result).or_default() += 1;
    }

    fn merge(&mut self, other: Coverage) {
        for (key, by) in other.calls {
            let mine = self.calls.entry(key).or_default();
            by.into_iter().for_each(|(result, count)| *mine.entry(result).or_default() += count);
        }
        for (key, by) in other.events {
            let mine = self.events.entry(key).or_default();
            by.into_iter().for_each(|(status, count)| *mine.entry(status).or_default() += count);
        }
        for (name, count) in other.reached {
            *self.reached.entry(name).or_default() += count;
        }
    }

    /// The goals that no program has reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = goals(self.network).iter().map(|&(name, _)| name).collect();
        all.extend([MOVED, RACED, SYNCHRONOUS]);
        all.retain(|name| self.reached.get(name).is_none_or(|&count| count == 0));
        all
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "calls, by what they returned:")?;
        for ((level, name), by) in &self.calls {
            let by: Vec<String> = by.iter().map(|(result, count)| format!("{result} {count}")).collect();
            writeln!(f, "  {:6} {name:20} {}", format!("{level:?}"), by.join(", "))?;
        }
        writeln!(f, "events, by status:")?;
        for ((level, kind), by) in &self.events {
            let by: Vec<String> = by.iter().map(|(status, count)| format!("({status}) {count}")).collect();
            writeln!(f, "  {:6} {kind:20} {}", format!("{level:?}"), by.join(", "))?;
        }
        writeln!(f, "programs that reached:")?;
        for (name, count) in &self.reached {
            writeln!(f, "  {name:50} {count}")?;
        }
        Ok(())
    }
}
