//! Where a program is played: a stage for each side, and the steps that go to both.

use cmid_datapath::{Caps, DataPath};
use cmid_proto::{Attaching, ConnParam, Errno};

use crate::program::{Action, Level, Numbers, Offer, Program, SideName, Slot, Step};
use crate::trace::{SideTrace, Trace};
use crate::{core_runner::CoreRunner, device_runner::DeviceRunner};

/// What a stage has to say that is no part of its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Migrations after which the new channel was readable, and had not been before: unread events moved along.
    pub moved_unread: u32,
}

/// One side of a run.
pub trait Runner {
    /// Makes the call, or takes the events, and writes down what came of it.
    fn perform(&mut self, at: usize, action: &Action);
    /// Takes all events off all channels.
    fn drain(&mut self, at: usize);
    /// Writes down how the ids stand.
    fn tell_state(&mut self, at: usize);
    /// Destroys all ids.
    fn destroy_all(&mut self, at: usize);
    /// Closes all channels.
    fn close_all(&mut self, at: usize);
    /// What was seen.
    fn trace(&self) -> &SideTrace;
    /// What else there is to say.
    fn observed(&self) -> Observed;
}

/// Called before each read of a channel.
pub type BeforeRead = std::rc::Rc<dyn Fn()>;

/// Both sides, on stages of the program's level.
pub struct Runners {
    a: Box<dyn Runner>,
    b: Box<dyn Runner>,
}

/// The steps that end every run, with a pause after each: what is left is read, and each side sees the other go.
pub const EPILOGUE: usize = 7;

impl Runners {
    /// Two stages on these devices.
    ///
    /// `before_read` is called before each read of a channel.
    pub fn new<D: DataPath>(program: &Program, numbers: Numbers, a: D, b: D, before_read: &BeforeRead) -> Self {
        match program.level {
            Level::Device => {
                let runner = |device| Box::new(DeviceRunner::new(device, numbers, before_read.clone()));
                Runners { a: runner(a), b: runner(b) }
            }
            Level::Core => {
                let runner = |device| Box::new(CoreRunner::new(device, numbers, before_read.clone()));
                Runners { a: runner(a), b: runner(b) }
            }
        }
    }

    /// Plays a step that is one side's.
    pub fn perform(&mut self, at: usize, step: &Step) {
        match step.side {
            SideName::A => self.a.perform(at, &step.action),
            SideName::B => self.b.perform(at, &step.action),
        }
    }

    /// Plays a part of the end, of [`EPILOGUE`].
    pub fn epilogue(&mut self, at: usize, part: usize) {
        match part {
            // Reading an answer may confirm it, which the other side then hears of.
            0 => self.a.drain(at),
            1 => self.b.drain(at),
            2 => {
                self.a.tell_state(at);
                self.b.tell_state(at);
            }
            3 => self.a.destroy_all(at),
            4 => {
                self.b.drain(at);
                self.b.tell_state(at);
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

    /// What both sides have seen.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace { a: self.a.trace().clone(), b: self.b.trace().clone() }
    }

    /// What else both have to say.
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

/// A QP with what it needs; dropped in this order.
pub(crate) struct Path<D: DataPath> {
    _qp: D::Qp,
    _cq: D::Cq,
    _pd: D::Pd,
}

impl<D: DataPath> Path<D> {
    /// Puts a QP on an id.
    pub(crate) fn attach(device: &mut D, attaching: Attaching<'_>, max_send_wr: u32) -> Result<Self, Errno> {
        let id = attaching.id();
        let pd = device.alloc_pd(id)?;
        let cq = device.create_cq(id, 4)?;
        let qp = device.create_qp(attaching, &pd, &cq, &cq, Caps { max_send_wr, max_recv_wr: 1 })?;
        Ok(Path { _qp: qp, _cq: cq, _pd: pd })
    }
}

/// More work requests than soft-RoCE has (`RXE_MAX_QP_WR`).
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

/// Private data that tells who sent it, at which step, without a zero in it.
pub(crate) fn data(at: usize, id: Slot, len: u8) -> Vec<u8> {
    (0..len).map(|index| (index ^ id.wrapping_mul(17) ^ (at as u8).wrapping_mul(29)) | 1).collect()
}

/// How a slot is called.
pub(crate) fn name(id: Slot) -> String {
    if id < crate::program::CHILDREN { format!("id{id}") } else { format!("child{}", id - crate::program::CHILDREN) }
}
