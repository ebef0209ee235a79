//! The data that the core stores about the device of an id.

use crate::transport::Transport;

/// Whether an id has a device, the transport of the device, and whether the id awaits the answer to a connect. One
/// byte, because there may be many ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnDevice(u8);

impl OnDevice {
    const IWARP: u8 = 2;
    const AWAITS_ANSWER: u8 = 4;

    pub(crate) const NO: OnDevice = OnDevice(0);
    pub(crate) const YES: OnDevice = OnDevice(1);

    /// Records that the id has a device, if `found`.
    #[inline(always)]
    pub(crate) fn note(&mut self, found: bool) {
        self.0 |= u8::from(found);
    }

    /// Records that the device is an iWARP device; see `Core::note_iwarp`.
    pub(crate) fn note_iwarp(&mut self) {
        self.0 |= OnDevice::IWARP;
    }

    /// Records that a connect has begun. On an iWARP device, a disconnect and a destroy then block in the kernel until
    /// the answer (`iw_cm_disconnect`, `iw_destroy_cm_id`).
    pub(crate) fn note_connect(&mut self) {
        if self.transport() == Transport::Iwarp {
            self.0 |= OnDevice::AWAITS_ANSWER;
        }
    }

    /// Records that the connect has ended.
    pub(crate) fn note_answer(&mut self) {
        self.0 &= !OnDevice::AWAITS_ANSWER;
    }

    /// Whether a destroy would block until the answer to a connect has come.
    pub(crate) const fn awaits_answer(self) -> bool {
        self.0 & OnDevice::AWAITS_ANSWER != 0
    }

    /// Whether the id has a device.
    #[inline(always)]
    pub(crate) const fn is_some(self) -> bool {
        self.0 & OnDevice::YES.0 != 0
    }

    /// The transport; InfiniBand until `note_iwarp`.
    #[inline(always)]
    pub(crate) const fn transport(self) -> Transport {
        if self.0 & OnDevice::IWARP == 0 { Transport::InfiniBand } else { Transport::Iwarp }
    }
}
