//! The data that the core stores about the device of an id and about its addresses.

/// Whether an id has a device, whether it awaits the answer to a connect, and which of its addresses are of the loopback. One byte, because there may be many ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnDevice(u8);

impl OnDevice {
    const AWAITS_ANSWER: u8 = 4;
    const ON_LOOPBACK: u8 = 8;
    const TO_LOOPBACK: u8 = 16;

    pub(crate) const NO: OnDevice = OnDevice(0);
    pub(crate) const YES: OnDevice = OnDevice(1);

    /// Records that the id has a device, if `found`.
    pub(crate) fn note(&mut self, found: bool) {
        self.0 |= u8::from(found);
    }

    /// Records that a connect has begun on an iWARP device. A disconnect and a destroy then block in the kernel until the
    /// answer (`iw_cm_disconnect`, `iw_destroy_cm_id`).
    pub(crate) fn note_connect(&mut self) {
        self.0 |= OnDevice::AWAITS_ANSWER;
    }

    /// Records that the connect has ended.
    pub(crate) fn note_answer(&mut self) {
        self.0 &= !OnDevice::AWAITS_ANSWER;
    }

    /// Records whether the address that the id is bound to is of the [loopback](crate::guard::is_loopback).
    pub(crate) fn note_local(&mut self, is_loopback: bool) {
        self.0 = if is_loopback { self.0 | OnDevice::ON_LOOPBACK } else { self.0 & !OnDevice::ON_LOOPBACK };
    }

    /// Records that a lookup of an idle id may bind it to a loopback address. It may do so also if it fails.
    pub(crate) fn note_source(&mut self, is_loopback: bool) {
        self.0 |= if is_loopback { OnDevice::ON_LOOPBACK } else { 0 };
    }

    /// Records whether the address of the peer is of the [loopback](crate::guard::is_loopback).
    pub(crate) fn note_peer(&mut self, is_loopback: bool) {
        self.0 = if is_loopback { self.0 | OnDevice::TO_LOOPBACK } else { self.0 & !OnDevice::TO_LOOPBACK };
    }

    /// Whether the id is bound to a loopback address, or may be, because a lookup from one has failed.
    pub(crate) const fn is_on_loopback(self) -> bool {
        self.0 & OnDevice::ON_LOOPBACK != 0
    }

    /// Whether the address of the peer is of the loopback.
    pub(crate) const fn is_to_loopback(self) -> bool {
        self.0 & OnDevice::TO_LOOPBACK != 0
    }

    /// Whether a destroy would block until the answer to a connect has come.
    pub(crate) const fn awaits_answer(self) -> bool {
        self.0 & OnDevice::AWAITS_ANSWER != 0
    }

    /// Whether the id has a device.
    pub(crate) const fn is_some(self) -> bool {
        self.0 & OnDevice::YES.0 != 0
    }
}
