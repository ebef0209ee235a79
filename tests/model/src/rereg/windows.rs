//! The windows of a program, and their work requests. The device executes them; the program knows what it has polled.

use std::collections::VecDeque;

use cmid_proto::datapath::{Completion, WcFlags, WcOpcode};
use cmid_proto::memory::{Access, Bind, Bindings};

use super::things::{Flight, Work};
use crate::input::Input;
use crate::model::mr::Device;
use crate::say::say;

/// Memory windows of type 2.
pub(super) const WINDOWS: usize = 3;

/// The work requests in flight.
type InFlight = VecDeque<Flight>;

/// The number of the one QP.
const QP: u32 = 1;

/// What the program knows of its windows.
#[derive(Default)]
pub(super) struct Windows {
    pub(super) bindings: Bindings,
    /// Which of its two keys each window has. The next window has the same two.
    second: [bool; WINDOWS],
    /// The keys that the peer has invalidated, and whose receives are not polled yet.
    unpolled: VecDeque<u32>,
    /// Whether an invalidation has failed: the QP executes no later one.
    has_failed: bool,
}

impl Windows {
    /// The bind of a window to a valid region. The device executes it now or later, after the earlier ones of the window.
    pub(super) fn bind(&mut self, device: &mut Device, flights: &mut InFlight, lkey: u32, input: &mut Input<'_>) {
        let (window, signaled) = (input.below(WINDOWS), !input.once_in(4));
        let now = input.once_in(2) && !flights.iter().any(|flight| flight.names_window(window));
        say(|| format!("window {window} is bound to {lkey}, now: {now}, signaled: {signaled}"));
        self.second[window] ^= true;
        let rkey = self.key(window);
        self.bindings.bind(window as u64, Bind { qp_num: QP, lkey, rkey, access: Access::REMOTE_WRITE });
        if input.once_in(8) {
            // The post fails, and the device executes it nevertheless.
            self.bindings.bind_failed(window as u64);
        }
        if now {
            device.bind(window, lkey, rkey);
        }
        let work = if now { Work::Nothing } else { Work::Bind(window, rkey) };
        flights.push_back(Flight { lkey, signaled, work });
    }

    /// The key that a window had last.
    fn key(&self, window: usize) -> u32 {
        (window as u32) << 8 | u32::from(self.second[window])
    }

    /// A window is invalidated by either side, or deallocated.
    pub(super) fn unbind(&mut self, device: &mut Device, flights: &mut InFlight, input: &mut Input<'_>) {
        let window = input.below(WINDOWS);
        match input.below(4) {
            0 if self.bindings.may_invalidate(window as u64, QP) => {
                say(|| format!("window {window}: an invalidation"));
                let number = self.bindings.invalidate(window as u64, QP);
                if input.once_in(8) {
                    self.bindings.invalidate_failed(number);
                }
                flights.push_back(Flight {
                    lkey: u32::MAX,
                    signaled: true,
                    work: Work::Invalidate(window, self.key(window)),
                });
            }
            0 => {}
            1 => {
                let Some(rkey) = device.unbind(window) else { return };
                say(|| format!("window {window}: the peer invalidates key {rkey}"));
                self.unpolled.push_back(rkey);
            }
            2 => {
                let Some(rkey) = self.unpolled.pop_front() else { return };
                say(|| format!("a receive reports the invalidation of key {rkey}"));
                let (opcode, flags) = (WcOpcode::RECV, WcFlags::IP_CSUM_OK);
                let received = Completion { opcode, flags, imm_data: rkey, qp_num: QP, ..Completion::default() };
                self.bindings.handle_completion(&received);
            }
            // The next window has its key, and would be bound or invalidated by what is queued.
            _ if flights.iter().any(|flight| flight.names_window(window)) => {}
            _ => {
                say(|| format!("window {window}: deallocated"));
                device.unbind(window);
                self.bindings.dealloc(window as u64);
            }
        }
    }

    /// The device executes an invalidation, whose completion is polled. It fails if the window is not bound by this
    /// key.
    pub(super) fn invalidated(&mut self, device: &mut Device, window: usize, rkey: u32) {
        self.has_failed |= device.key(window) != Some(rkey);
        if self.has_failed {
            return;
        }
        device.unbind(window);
        let done = Completion { opcode: WcOpcode::LOCAL_INV, qp_num: QP, ..Completion::default() };
        self.bindings.handle_completion(&done);
    }
}
