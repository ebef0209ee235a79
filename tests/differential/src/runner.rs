//! Runs a program: a runner for each side, and the steps that both perform.

use cmid_proto::datapath::{Caps, DataPath};
use cmid_proto::{Attaching, ConnParam, Errno};

use crate::address::Numbers;
use crate::data::Published;
use crate::program::{Action, Level, Offer, Program, SideName, Slot, Step};
use crate::trace::{SideTrace, Trace};
use crate::{core_runner::CoreRunner, device_runner::DeviceRunner};

/// Counts of a runner that are not part of its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Migrations after which the new channel became readable, because unread events moved along.
    pub moved_unread: u32,
}

/// One side of a run.
pub trait Runner {
    /// Makes the call, or reads the events, and records the result.
    fn perform(&mut self, at: usize, action: &Action);
    /// Reads all events of all channels.
    fn drain(&mut self, at: usize);
    /// Records the states of the ids.
    fn note_state(&mut self, at: usize);
    /// Destroys all ids.
    fn destroy_all(&mut self, at: usize);
    /// Closes all channels.
    fn close_all(&mut self, at: usize);
    /// The recorded trace.
    fn trace(&self) -> &SideTrace;
    /// The counts that are not part of the trace.
    fn observed(&self) -> Observed;
}

/// Called before each read of a channel.
pub type BeforeRead = std::rc::Rc<dyn Fn()>;

/// Both sides, with runners of the program's level.
pub struct Runners {
    a: Box<dyn Runner>,
    b: Box<dyn Runner>,
}

/// The number of steps that end every run, with a pause after each: they read the rest, and each side sees the end of
/// the other.
pub const EPILOGUE: usize = 7;

impl Runners {
    /// Makes two runners on these devices.
    ///
    /// `before_read` is called before each read of a channel.
    pub fn new<D: DataPath + 'static>(
        program: &Program,
        numbers: Numbers,
        a: D,
        b: D,
        before_read: &BeforeRead,
    ) -> Self {
        match program.level {
            Level::Device => {
                let (of_a, of_b) = (Published::default(), Published::default());
                let runner = |device, own: &Published, peer: &Published| {
                    Box::new(DeviceRunner::new(device, numbers, before_read.clone(), [own.clone(), peer.clone()]))
                };
                Runners { a: runner(a, &of_a, &of_b), b: runner(b, &of_b, &of_a) }
            }
            Level::Core => {
                let runner = |device| Box::new(CoreRunner::new(device, numbers, before_read.clone()));
                Runners { a: runner(a), b: runner(b) }
            }
        }
    }

    /// Performs a step of one side.
    pub fn perform(&mut self, at: usize, step: &Step) {
        match step.side {
            SideName::A => self.a.perform(at, &step.action),
            SideName::B => self.b.perform(at, &step.action),
        }
    }

    /// Performs a part of the end, out of [`EPILOGUE`].
    pub fn epilogue(&mut self, at: usize, part: usize) {
        match part {
            // Reading an answer may confirm it, which causes an event at the other side.
            0 => self.a.drain(at),
            1 => self.b.drain(at),
            2 => {
                self.a.note_state(at);
                self.b.note_state(at);
            }
            3 => self.a.destroy_all(at),
            4 => {
                self.b.drain(at);
                self.b.note_state(at);
            }
            5 => self.b.destroy_all(at),
            _ => {
                for side in [&mut self.a, &mut self.b] {
                    side.drain(at);
                    side.close_all(at);
                }
            }
        }
    }

    /// The traces of both sides.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace { a: self.a.trace().clone(), b: self.b.trace().clone() }
    }

    /// The counts of both sides.
    #[must_use]
    pub fn observed(&self) -> Observed {
        Observed { moved_unread: self.a.observed().moved_unread + self.b.observed().moved_unread }
    }
}

impl std::fmt::Debug for Runners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}

/// A QP with its CQ and PD, dropped in this order.
pub(crate) struct Path<D: DataPath> {
    _qp: D::Qp,
    _cq: D::Cq,
    _pd: D::Pd,
}

impl<D: DataPath> Path<D> {
    /// Attaches a QP to an id.
    pub(crate) fn attach(device: &mut D, attaching: Attaching<'_>, max_send_wr: u32) -> Result<Self, Errno> {
        let id = attaching.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 4)?;
        let qp = device.create_qp(attaching, &pd, &cq, &cq, Caps { max_send_wr, max_recv_wr: 1, ..Caps::default() })?;
        Ok(Path { _qp: qp, _cq: cq, _pd: pd })
    }
}

/// More work requests than soft-RoCE supports (`RXE_MAX_QP_WR`).
pub(crate) const HUGE: u32 = 4_000_000;

/// The parameters of an offer.
pub(crate) fn param(offer: Offer, numbers: Numbers) -> ConnParam {
    ConnParam {
        responder_resources: offer.serves,
        initiator_depth: offer.starts,
        rnr_retry_count: offer.rnr,
        qp_num: numbers.qp_num + u32::from(offer.qp),
        ..ConnParam::default()
    }
}

/// Private data that identifies its sender and the step, without zero bytes.
pub(crate) fn data(at: usize, id: Slot, len: u8) -> Vec<u8> {
    (0..len).map(|index| (index ^ id.wrapping_mul(17) ^ (at as u8).wrapping_mul(29)) | 1).collect()
}

/// The name of a slot.
pub(crate) fn name(id: Slot) -> String {
    if id < crate::program::CHILDREN { format!("id{id}") } else { format!("child{}", id - crate::program::CHILDREN) }
}
