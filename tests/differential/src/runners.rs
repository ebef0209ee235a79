//! Runs a program: a runner for each side, and the steps that both perform.

use cmid_proto::datapath::DataPath;

use crate::address::Numbers;
use crate::core_runner::CoreRunner;
use crate::data::Published;
use crate::device_runner::DeviceRunner;
use crate::program::{Action, IdCall, Level, Network, Program, SideName, Step};
use crate::runner::{BeforeRead, Observed, Runner};
use crate::trace::Trace;

/// Both sides, with runners of the program's level.
pub struct Runners {
    a: Box<dyn Runner>,
    b: Box<dyn Runner>,
    network: Network,
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
                Runners { a: runner(a, &of_a, &of_b), b: runner(b, &of_b, &of_a), network: program.network }
            }
            Level::Core => {
                let runner = |device| Box::new(CoreRunner::new(device, numbers, before_read.clone()));
                Runners { a: runner(a), b: runner(b), network: program.network }
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
                // An id that waits for an answer would wait for it in the kernel while it is destroyed.
                if self.network == Network::Iwarp {
                    destroy(&mut *self.a, at, true);
                    destroy(&mut *self.b, at, true);
                }
            }
            3 => destroy(&mut *self.a, at, false),
            4 => {
                self.b.drain(at);
                self.b.note_state(at);
            }
            5 => destroy(&mut *self.b, at, false),
            _ => {
                for side in [&mut self.a, &mut self.b] {
                    side.drain(at);
                    side.drop_qps();
                    side.perform(at, &ACK_ALL);
                    for channel in side.channels() {
                        side.perform(at, &Action::CloseChannel(channel));
                    }
                    side.note_state(at);
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

/// More tokens than a program can have.
const ACK_ALL: Action = Action::Ack(u8::MAX);

fn destroy(side: &mut dyn Runner, at: usize, only_passive: bool) {
    side.perform(at, &ACK_ALL);
    for id in side.ids() {
        if !only_passive || side.is_passive(id) {
            side.perform(at, &Action::On(id, IdCall::Destroy));
        }
    }
}

impl std::fmt::Debug for Runners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runners").finish_non_exhaustive()
    }
}
