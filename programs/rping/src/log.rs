//! Prints the steps of the demo: the actor, the action, and the state of the id after it.

use cmid_proto::{Core, Device, Drive, Event, EventKind, IdKey, Observer, Poller};

/// The name of a side in the output; `None` prints nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log(pub(crate) Option<&'static str>);

impl Log {
    pub(crate) const SILENT: Log = Log(None);

    /// Prints an action of the side on an id.
    pub(crate) fn note<D: Device, P: Poller<D>, O: Observer>(self, drive: &Drive<D, P, O>, id: IdKey, what: &str) {
        self.line(drive.core(), id, what);
    }

    /// Prints an event of the side.
    pub(crate) fn note_event<D: Device, P: Poller<D>, O: Observer>(self, drive: &Drive<D, P, O>, event: &Event) {
        self.line(drive.core(), event.id, &format!("<- {}", describe(event.kind, event.status)));
    }

    /// Prints an action without an id.
    pub(crate) fn print(self, what: &str) {
        if let Some(name) = self.0 {
            say!("  {name:<7} {what}");
        }
    }

    /// Prints that an id is destroyed.
    pub(crate) fn ends(self, id: IdKey) {
        if let Some(name) = self.0 {
            say!("  {name:<7} {:<7} {:<50} [gone]", id.to_string(), "is destroyed");
        }
    }

    fn line(self, core: &Core, id: IdKey, what: &str) {
        if let Some(name) = self.0 {
            let state = core.state(id).map_or("gone", cmid_proto::State::name);
            say!("  {name:<7} {:<7} {what:<50} [{state}]", id.to_string());
        }
    }
}

/// An event and its status, if it has one.
fn describe(kind: EventKind, status: i32) -> String {
    if status == 0 { kind.to_string() } else { format!("{kind} (status {status})") }
}
