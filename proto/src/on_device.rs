//! The data that the core stores about the device of an id and about its addresses.

use crate::transport::Transport;

/// Whether an id has a device, the transport of the device, whether the id awaits the answer to a connect, and which of
/// its addresses are of the loopback. One byte, because there may be many ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnDevice(u8);

impl OnDevice {
    const IWARP: u8 = 2;
    const AWAITS_ANSWER: u8 = 4;
    const ON_LOOPBACK: u8 = 8;
    const TO_LOOPBACK: u8 = 16;
    const BINDS_TO_LOOPBACK: u8 = 32;

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

    /// Records whether the address of a bind is of the [loopback](crate::guard::is_loopback). It counts once the bind has
    /// succeeded: [`OnDevice::note_bound`].
    #[inline(always)]
    pub(crate) fn note_bind(&mut self, to_loopback: bool) {
        self.0 = if to_loopback { self.0 | OnDevice::BINDS_TO_LOOPBACK } else { self.0 & !OnDevice::BINDS_TO_LOOPBACK };
    }

    /// Records that the bind has succeeded.
    #[inline(always)]
    pub(crate) fn note_bound(&mut self) {
        let on = if self.0 & OnDevice::BINDS_TO_LOOPBACK == 0 { 0 } else { OnDevice::ON_LOOPBACK };
        self.0 = self.0 & !OnDevice::ON_LOOPBACK | on;
    }

    /// Records that a lookup of an idle id may bind it to a loopback address. It may do so also if it fails.
    #[inline(always)]
    pub(crate) fn note_source(&mut self, is_loopback: bool) {
        self.0 |= if is_loopback { OnDevice::ON_LOOPBACK } else { 0 };
    }

    /// Records whether the address of the peer is of the [loopback](crate::guard::is_loopback).
    #[inline(always)]
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
