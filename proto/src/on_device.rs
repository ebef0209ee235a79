//! What the core knows of the device of an id.

use crate::transport::Transport;

/// Whether an id has a device, and the transport of that device as far as it is known: in one byte, because there may be
/// many ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OnDevice(u8);

impl OnDevice {
    const IWARP: u8 = 2;

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

    /// Whether the id has a device.
    #[inline(always)]
    pub(crate) const fn is_some(self) -> bool {
        self.0 & OnDevice::YES.0 != 0
    }

    /// The transport; InfiniBand's until it is known to be another one.
    #[inline(always)]
    pub(crate) const fn transport(self) -> Transport {
        if self.0 & OnDevice::IWARP == 0 { Transport::InfiniBand } else { Transport::Iwarp }
    }
}
