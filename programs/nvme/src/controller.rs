//! How a controller is brought up: which queue is connected and which command is sent next, until it is live.
//!
//! The steps are those of Linux (`nvme_rdma_setup_ctrl`): the admin queue, Connect, the capabilities, enable, wait until it is
//! ready, Identify, the events and the number of I/O queues, then each of these with a Connect of its own. The machine has no
//! connection and no clock.

use std::time::Duration;

use cmid_mio::proto::Time;

use crate::queue::SIZE_MAX;
use crate::wire::{
    CmReply, CmRequest, Command, ConnectData, ConnectTo, Cqe, Feature, IdController, Property, Status, WireError,
    connect, identify_controller, property_get, property_set, set_features,
};

/// The NQN of the discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The entries of the admin queue (`NVME_AQ_DEPTH`): nvmet rejects a longer one.
pub const ADMIN_SIZE: u16 = 32;

/// How often the controller is asked whether it is ready.
const READY_POLL: Duration = Duration::from_millis(100);

/// The events that are asked for: namespaces, and the discovery log (`NVME_AEN_SUPPORTED` of the kernel).
const EVENTS: u32 = 1 << 8 | 1 << 31;

/// What is to be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The NQN of the subsystem, or [`DISCOVERY_NQN`].
    pub subsystem: String,
    /// The NQN of this host. A target permits hosts by it.
    pub host: String,
    /// The identifier of this host, the same for all its connections.
    pub host_id: [u8; 16],
    /// The number of I/O queues. The controller may grant fewer. None of a discovery service, nor with 0.
    pub queues: u16,
    /// The entries of each I/O queue, at least 2. The controller may have less.
    pub size: u16,
    /// The keep-alive timeout; zero for none.
    pub keep_alive: Duration,
}

impl Settings {
    fn keep_alive_millis(&self) -> u32 {
        u32::try_from(self.keep_alive.as_millis()).unwrap_or(u32::MAX)
    }
}

/// The capabilities of a controller (the property `CAP`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// Returns the most entries of an I/O queue (`MQES`, which is zero-based).
    #[must_use]
    pub fn entries(self) -> u16 {
        (self.0 as u16).saturating_add(1).clamp(2, SIZE_MAX)
    }

    /// Returns how long the controller may take until it is ready (`TO`, in units of 500 ms).
    #[must_use]
    pub fn ready_within(self) -> Duration {
        Duration::from_millis(500 * ((self.0 >> 24 & 0xff).max(1)))
    }

    /// Returns the smallest page as a power of two (`MPSMIN`), which `MDTS` counts.
    #[must_use]
    pub fn page(self) -> u32 {
        12 + (self.0 >> 48 & 0xf) as u32
    }
}

/// Why a controller cannot be brought up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A command has failed.
    #[error("{what}: {status}")]
    Refused {
        /// The command.
        what: &'static str,
        /// The status.
        status: Status,
    },
    /// A response is not as it has to be.
    #[error("{what}: {error}")]
    Wire {
        /// The command.
        what: &'static str,
        /// What is wrong.
        error: WireError,
    },
    /// The controller has not become ready in the time that it tells.
    #[error("the controller has not become ready within {0:?}")]
    NotReady(Duration),
    /// The controller tells that it has failed (`CSTS.CFS`).
    #[error("the controller reports a fatal error")]
    Fatal,
    /// The controller grants no I/O queue.
    #[error("the controller grants no I/O queue")]
    NoQueues,
    /// A response came where none was expected.
    #[error("a response where none is expected")]
    Unexpected,
}

impl ControllerError {
    /// Whether another attempt would fail in the same way: the target refuses, and says that it stays so.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            ControllerError::Refused { status, .. } => status.is_final(),
            ControllerError::Wire { .. }
            | ControllerError::NotReady(_)
            | ControllerError::Fatal
            | ControllerError::NoQueues
            | ControllerError::Unexpected => false,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Todo {
    /// Connect this queue, then call [`Controller::connected`].
    Dial(CmRequest),
    /// Send this command on this queue, and pass its response to [`Controller::answered`].
    Send {
        /// The queue.
        qid: u16,
        /// The command.
        command: Command,
    },
    /// Wait until this time, then call [`Controller::woken`].
    Wait(Time),
    /// Nothing more: the controller is live.
    Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Dial(CmRequest),
    Connect(CmRequest),
    Cap,
    Enable,
    Ready { until: Time },
    Identify,
    Events,
    Queues,
    Live,
}

/// A controller on its way to being live.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    stage: Stage,
    cntlid: u16,
    cap: Cap,
    identity: Option<IdController>,
    /// The I/O queues that the controller has granted.
    granted: u16,
}

impl Controller {
    /// Begins. The first queue is that of the administrator.
    pub fn new(settings: Settings) -> (Self, Todo) {
        let request = CmRequest { qid: 0, size: ADMIN_SIZE };
        let stage = Stage::Dial(request);
        let controller =
            Controller { settings, stage, cntlid: ConnectData::ANY, cap: Cap(0), identity: None, granted: 0 };
        (controller, Todo::Dial(request))
    }

    /// Returns what Identify has told; `None` before it.
    #[must_use]
    pub fn identity(&self) -> Option<&IdController> {
        self.identity.as_ref()
    }

    /// Returns the number of the controller.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the number of I/O queues that the controller has granted.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.granted
    }

    /// Whether it is live.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }

    /// Returns the most bytes of a command, at most `limit`.
    #[must_use]
    pub fn transfer_max(&self, limit: usize) -> usize {
        match self.identity.as_ref().map_or(0, |id| u32::from(id.mdts)) {
            0 => limit,
            mdts => 1_usize.checked_shl(self.cap.page().saturating_add(mdts)).unwrap_or(usize::MAX).min(limit),
        }
    }

    /// Whether it is a discovery service.
    fn is_discovery(&self) -> bool {
        self.settings.subsystem == DISCOVERY_NQN || self.identity.as_ref().is_some_and(|id| id.kind == 2)
    }

    /// The configuration: enabled, entries of 64 and 16 bytes, pages of the smallest size.
    fn enabled(&self) -> u32 {
        1 | (self.cap.page() - 12) << 7 | 6 << 16 | 4 << 20
    }

    /// Returns the command that shuts it down. The connections are to be ended after its response.
    #[must_use]
    pub fn shutdown(&self) -> Command {
        property_set(Property::Cc, self.enabled() | 1 << 14)
    }

    fn send(&mut self, stage: Stage, command: Command) -> Todo {
        self.stage = stage;
        let qid = if let Stage::Connect(request) = stage { request.qid } else { 0 };
        Todo::Send { qid, command }
    }

    /// The queue of [`Todo::Dial`] is connected. The queue has as many entries as both sides have receives
    /// ([`Controller::size`]).
    ///
    /// # Errors
    /// [`ControllerError::Unexpected`]; [`ControllerError::Wire`] for an admin queue below [`ADMIN_SIZE`], the smallest that
    /// the specification permits.
    pub fn connected(&mut self, reply: CmReply) -> Result<Todo, ControllerError> {
        let Stage::Dial(request) = self.stage else { return Err(ControllerError::Unexpected) };
        if request.qid == 0 && reply.receives < ADMIN_SIZE {
            let (what, value) = ("the private data of the accept of the admin queue", reply.receives.into());
            return Err(ControllerError::Wire {
                what: "accept",
                error: WireError::Field { what, field: "CRQSIZE", value },
            });
        }
        let Settings { subsystem, host, host_id, .. } = self.settings.clone();
        let data = ConnectData { host_id, cntlid: self.cntlid, subsystem, host };
        let kato = if request.qid == 0 { self.settings.keep_alive_millis() } else { 0 };
        let to = ConnectTo { qid: request.qid, size: Controller::size(request, reply), kato };
        Ok(self.send(Stage::Connect(request), connect(to, &data)))
    }

    /// Returns the entries of a queue.
    #[must_use]
    pub fn size(request: CmRequest, reply: CmReply) -> u16 {
        request.size.min(reply.receives)
    }

    /// The response to the command of [`Todo::Send`] has come, with the data of an Identify.
    ///
    /// # Errors
    /// [`ControllerError`]. The controller is then given up.
    pub fn answered(&mut self, response: Cqe, data: &[u8], now: Time) -> Result<Todo, ControllerError> {
        let what = match self.stage {
            Stage::Connect(_) => "Connect",
            Stage::Cap => "Property Get of CAP",
            Stage::Enable => "Property Set of CC",
            Stage::Ready { .. } => "Property Get of CSTS",
            Stage::Identify => "Identify Controller",
            Stage::Events => "Set Features of asynchronous events",
            Stage::Queues => "Set Features of the number of queues",
            Stage::Dial(_) | Stage::Live => return Err(ControllerError::Unexpected),
        };
        // A controller without these events works without them.
        if !response.status.is_success() && self.stage != Stage::Events {
            return Err(ControllerError::Refused { what, status: response.status });
        }
        match self.stage {
            Stage::Connect(request) if request.qid == 0 => {
                self.cntlid = response.result as u16;
                Ok(self.send(Stage::Cap, property_get(Property::Cap)))
            }
            Stage::Connect(request) => self.dial_after(request.qid),
            Stage::Cap => {
                self.cap = Cap(response.result);
                Ok(self.send(Stage::Enable, property_set(Property::Cc, self.enabled())))
            }
            Stage::Enable => {
                let until = now.after(self.cap.ready_within());
                Ok(self.send(Stage::Ready { until }, property_get(Property::Csts)))
            }
            Stage::Ready { until } => self.ready(response.result, until, now),
            Stage::Identify => {
                let identity = IdController::decode(data).map_err(|error| ControllerError::Wire { what, error })?;
                let events = identity.oaes & EVENTS;
                self.identity = Some(identity);
                match events {
                    0 => self.ask_for_queues(),
                    _ => Ok(self.send(Stage::Events, set_features(Feature::AsyncEvents, events))),
                }
            }
            Stage::Events => self.ask_for_queues(),
            Stage::Queues => {
                let [submission, completion] = [response.result as u16, (response.result >> 16) as u16];
                self.granted = submission.min(completion).saturating_add(1).min(self.settings.queues);
                self.dial_after(0)
            }
            Stage::Dial(_) | Stage::Live => Err(ControllerError::Unexpected),
        }
    }

    fn ready(&mut self, csts: u64, until: Time, now: Time) -> Result<Todo, ControllerError> {
        if csts & 2 != 0 {
            return Err(ControllerError::Fatal);
        }
        if csts & 1 != 0 {
            return Ok(self.send(Stage::Identify, identify_controller()));
        }
        if now >= until {
            return Err(ControllerError::NotReady(self.cap.ready_within()));
        }
        Ok(Todo::Wait(now.after(READY_POLL)))
    }

    /// The time of [`Todo::Wait`] has come.
    ///
    /// # Errors
    /// [`ControllerError::Unexpected`].
    pub fn woken(&mut self) -> Result<Todo, ControllerError> {
        let Stage::Ready { .. } = self.stage else { return Err(ControllerError::Unexpected) };
        Ok(self.send(self.stage, property_get(Property::Csts)))
    }

    fn ask_for_queues(&mut self) -> Result<Todo, ControllerError> {
        if self.is_discovery() || self.settings.queues == 0 {
            self.stage = Stage::Live;
            return Ok(Todo::Live);
        }
        let more = u32::from(self.settings.queues - 1);
        Ok(self.send(Stage::Queues, set_features(Feature::Queues, more << 16 | more)))
    }

    /// Dials the queue after this one, if there is one.
    fn dial_after(&mut self, qid: u16) -> Result<Todo, ControllerError> {
        if qid >= self.granted {
            let is_usable = self.granted > 0;
            self.stage = Stage::Live;
            return if is_usable { Ok(Todo::Live) } else { Err(ControllerError::NoQueues) };
        }
        let request = CmRequest { qid: qid + 1, size: self.settings.size.min(self.cap.entries()).max(2) };
        self.stage = Stage::Dial(request);
        Ok(Todo::Dial(request))
    }
}

#[cfg(test)]
mod tests;
