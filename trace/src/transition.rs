//! A step of a replay as text.

use std::fmt;

use cmid_proto::{IdKey, Request, State, Step, Time};

use crate::words::{self, shown};

/// The direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrow {
    /// A request or an ack.
    AppToCore,
    /// An event that is delivered.
    CoreToApp,
    /// A call.
    CoreToDevice,
    /// The outcome of a call.
    Outcome,
    /// An event read from the device.
    DeviceToCore,
    /// A deadline.
    Clock,
}

/// One step of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The line of the file.
    pub line: usize,
    /// The time.
    pub at: Time,
    /// The id that the step concerns.
    pub id: Option<IdKey>,
    /// The id's state before; `None` if it did not exist.
    pub before: Option<State>,
    /// The id's state after; `None` if it does not exist any more.
    pub after: Option<State>,
    /// The direction of its arrow; `None` for a step between the driver and the core.
    pub arrow: Option<Arrow>,
    /// The description of the step.
    pub text: String,
}

impl Transition {
    /// Returns the change of the id's state; `None` if it did not change.
    #[must_use]
    pub fn change(&self) -> Option<String> {
        let name = |state: Option<State>| state.map_or("-", |state| state.name());
        let id = self.id.filter(|_| self.before != self.after)?;
        Some(format!("{id}: {} -> {}", name(self.before), name(self.after)))
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.arrow {
            Some(Arrow::AppToCore) => "app  > core  ",
            Some(Arrow::CoreToApp) => "app <  core  ",
            Some(Arrow::CoreToDevice) => "       core >  device",
            Some(Arrow::Outcome | Arrow::DeviceToCore) => "       core  < device",
            Some(Arrow::Clock) => "       core  < clock",
            None => "       core",
        };
        write!(f, "{who:21} {}", self.text)?;
        match (self.change(), self.id, self.after) {
            (Some(change), ..) => write!(f, "   [{change}]"),
            (None, Some(id), Some(state)) => write!(f, "   [{id} stays {state}]"),
            (None, ..) => Ok(()),
        }
    }
}

/// The direction of a step.
pub(crate) fn arrow(step: &Step<'_>) -> Option<Arrow> {
    match step {
        Step::OpenChannel { .. }
        | Step::CloseChannel { .. }
        | Step::PauseChannel { .. }
        | Step::ResumeChannel { .. }
        | Step::CreateId { .. }
        | Step::Submit { .. }
        | Step::Ack { .. }
        | Step::Release { .. }
        | Step::Adopt { .. } => Some(Arrow::AppToCore),
        Step::Deliver { .. } => Some(Arrow::CoreToApp),
        Step::Call { .. } => Some(Arrow::CoreToDevice),
        Step::Outcome { .. } => Some(Arrow::Outcome),
        Step::Event { .. } | Step::Unreadable { .. } => Some(Arrow::DeviceToCore),
        Step::Timeout => Some(Arrow::Clock),
        Step::Begin { .. }
        | Step::Readable { .. }
        | Step::Iwarp { .. }
        | Step::BeginRead { .. }
        | Step::Child { .. }
        | Step::WaitForRoom { .. }
        | Step::Yield
        | Step::End => None,
    }
}

/// A step in words: as [`Step`] shows it, with what a reader of a whole run needs besides.
pub(crate) fn text(step: &Step<'_>) -> String {
    let with = |data: &[u8]| if data.is_empty() { String::new() } else { format!(", data {}", shown(data)) };
    if let Step::Call { call, private_data } = step {
        words::call(call, private_data, shown)
    } else if let Step::Deliver { channel, event } = step {
        format!("{}, on {channel}", words::event(event, shown))
    } else if let Step::Event { channel, event, .. } = step {
        format!("{step}, on {channel}{}", with(event.private_data))
    } else if let Step::Submit { request: Request::Migrate { to: Some(to) }, result: Ok(()), .. } = step {
        format!("{step} to {to}")
    } else if let Step::Submit { request, .. } = step {
        format!("{step}{}", with(request.private_data()))
    } else if let Step::Release { number, result: Ok(()), .. } | Step::Adopt { number, .. } = step {
        format!("{step}, number {number}")
    } else {
        step.to_string()
    }
}
