//! What the providers of some devices do otherwise.

/// The vendor of a device (`vendor_id` of ibv_query_device(3)), which tells the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vendor(pub(super) u32);

/// `RXE_VENDOR_ID` and `SIW_VENDOR_ID` of the kernel.
const RXE: u32 = 0xff_ffff;
const SIW: u32 = 0x62_6d74;
/// Of PCI.
const BROADCOM: u32 = 0x14e4;
const CHELSIO: u32 = 0x1425;
const EMULEX: u32 = 0x10df;
const MICROSOFT: u32 = 0x1414;

impl Vendor {
    pub(super) const fn is_rxe(self) -> bool {
        self.0 == RXE
    }

    pub(super) const fn is_siw(self) -> bool {
        self.0 == SIW
    }

    /// Whether the calls of ibv_wr_post(3) can be used. At the end of the ring those of libbnxt_re write the second request
    /// of a batch behind their array, and of a batch they write the header of the last request only
    /// (`bnxt_re_get_wr_swqe`, `bnxt_re_send_wr_complete`).
    pub(super) const fn has_extended_calls(self) -> bool {
        self.0 != BROADCOM
    }

    /// Whether a CQ can be resized. If the kernel refuses, libbnxt_re frees the queue that is in use (`bnxt_re_resize_cq`).
    pub(super) const fn resizes(self) -> bool {
        self.0 != BROADCOM
    }

    /// Whether a post copies inline data. libmana ignores the flag, libocrdma does for datagrams, and libcxgb4 for a write
    /// before a short send (`post_write_cmpl`): the device reads the memory later.
    pub(super) const fn copies_inline(self) -> bool {
        !matches!(self.0, CHELSIO | EMULEX | MICROSOFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_providers_do_wrong_is_not_used() {
        let mellanox = Vendor(0x02c9);
        let of = |vendor: Vendor| (vendor.has_extended_calls() && vendor.resizes(), vendor.copies_inline());
        assert_eq!([Vendor(RXE), Vendor(SIW), mellanox].map(of), [(true, true); 3]);
        assert_eq!(of(Vendor(BROADCOM)), (false, true));
        assert_eq!([CHELSIO, EMULEX, MICROSOFT].map(Vendor).map(of), [(true, false); 3]);
    }
}
