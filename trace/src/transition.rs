//! A line of a replay as text.

use std::fmt;

use cmid_proto::{IdKey, Request, State, Time};

use crate::line::Line;
use crate::values::As;

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

/// The direction and the description of a line.
pub(crate) fn describe(line: &Line) -> (Option<Arrow>, String) {
    let no = |refused: &Option<String>| refused.as_ref().map_or(String::new(), |reason| format!(": refused, {reason}"));
    match line {
        Line::Begin { .. } => (None, "begin".into()),
        Line::Time(now) => (None, format!("the time is {}.{:09}", now / 1_000_000_000, now % 1_000_000_000)),
        Line::OpenChannel { is, refused, .. } => {
            (Some(Arrow::AppToCore), format!("open a channel{}{}", named(is), no(refused)))
        }
        Line::CloseChannel { channel, refused } => {
            (Some(Arrow::AppToCore), format!("close {}{}", channel.0, no(refused)))
        }
        Line::CreateId { port_space, is, refused, .. } => {
            (Some(Arrow::AppToCore), format!("create an id, {}{}{}", port_space.0, named(is), no(refused)))
        }
        Line::Submit { id, request, refused, .. } => {
            let request = request.request();
            let target = if let Request::Migrate { to: Some(to) } = request {
                format!(" to {to}")
            } else if let Request::Join { addr, .. } = request {
                format!(" {addr}")
            } else {
                String::new()
            };
            (Some(Arrow::AppToCore), format!("{} {}{target}{}", request.request_kind(), id.0, no(refused)))
        }
        Line::Ack { owner, refused, .. } => (Some(Arrow::AppToCore), format!("ack for {}{}", owner.0, no(refused))),
        Line::Call { call, .. } => (Some(Arrow::CoreToDevice), call.clone()),
        Line::Outcome { errno, fault, .. } => {
            let fault = fault.as_ref().map_or(String::new(), |fault| format!("; fault: {fault}"));
            let said = errno.map_or("ok".to_owned(), |As(errno)| errno.to_string());
            (Some(Arrow::Outcome), format!("{said}{fault}"))
        }
        Line::Readable(channel) => (None, format!("{} is readable", channel.0)),
        Line::Look { on, child } => {
            let child = if child.is_some() { "" } else { ", which takes no event" };
            (None, format!("read {}{child}", on.0))
        }
        Line::Event { on, raw, is, .. } => {
            let status = if raw.status == 0 { String::new() } else { format!(" with status {}", raw.status) };
            let is = if is == "known" { String::new() } else { format!(", {is}") };
            (Some(Arrow::DeviceToCore), format!("{} of {}{status} on {}{is}", raw.kind.0, raw.id.0, on.0))
        }
        Line::Unreadable { on, errno } => (Some(Arrow::DeviceToCore), format!("{} cannot be read: {}", on.0, errno.0)),
        Line::Child(id) => (None, format!("destroy {}: its request was not delivered", id.0)),
        Line::Iwarp(id) => (None, format!("{} is on an iWARP device", id.0)),
        Line::PauseChannel { channel, refused } => {
            (Some(Arrow::AppToCore), format!("pause {}{}", channel.0, no(refused)))
        }
        Line::ResumeChannel { channel, refused } => {
            (Some(Arrow::AppToCore), format!("resume {}{}", channel.0, no(refused)))
        }
        Line::WaitForRoom(channel) => (None, format!("{} waits for room", channel.0)),
        Line::Timeout => (Some(Arrow::Clock), "deadlines have passed".into()),
        Line::Deliver { on, event } => (Some(Arrow::CoreToApp), format!("{event}, on {}", on.0)),
        Line::Release { id, ticket, refused, .. } => {
            let ticket = ticket.as_ref().map_or(String::new(), |ticket| format!(" as {ticket}"));
            (Some(Arrow::AppToCore), format!("release {}{ticket}{}", id.0, no(refused)))
        }
        Line::Adopt { ticket, id, .. } => (Some(Arrow::AppToCore), format!("adopt {ticket} as {}", id.0)),
        Line::Yield(_) => (None, "yield".into()),
        Line::End(_) => (None, "end".into()),
    }
}

fn named<T: fmt::Display>(key: &Option<As<T>>) -> String {
    key.as_ref().map_or(String::new(), |As(key)| format!(": {key}"))
}
