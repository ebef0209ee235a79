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
const HUAWEI: u32 = 0x19e5;
const INTEL: u32 = 0x8086;
const MICROSOFT: u32 = 0x1414;
const PENSANDO: u32 = 0x1dd8;
const QLOGIC: u32 = 0x1077;
/// A kernel that does not say it: Linux before 6.16 for the devices of mana.
const UNKNOWN: u32 = 0;

impl Vendor {
    pub(super) const fn is_rxe(self) -> bool {
        self.0 == RXE
    }

    pub(super) const fn is_siw(self) -> bool {
        self.0 == SIW
    }

    /// Whether the calls of ibv_wr_post(3) can be used. At the end of the ring those of libbnxt_re write the second
    /// request of a batch behind their array, and of a batch they write the header of the last request only
    /// (`bnxt_re_get_wr_swqe`, `bnxt_re_send_wr_complete`). An abort of libionic takes back the place of the requests
    /// and not their numbers (`ionic_wr_abort`): the first completion then counts for later requests, too, which the
    /// device still executes. libhns marks a datagram as valid before it writes its ranges (`init_ud_wqe`), and an
    /// abort leaves the mark.
    pub(super) const fn has_extended_calls(self) -> bool {
        !matches!(self.0, BROADCOM | HUAWEI | PENSANDO)
    }

    /// Whether a CQ can be resized. If the kernel refuses, libbnxt_re frees the queue that is in use
    /// (`bnxt_re_resize_cq`). libirdma leaves completions in the old queue, where the destruction of a QP does not
    /// remove its own, and their poll follows the QP (`irdma_uresize_cq`, `irdma_clean_cqes`).
    pub(super) const fn resizes(self) -> bool {
        !matches!(self.0, BROADCOM | INTEL)
    }

    /// Whether a QP can be destroyed. Unless it is drained, completions of it may be unpolled: they have the address of
    /// the QP with libqedr (`cqe_get_qp`), and its number with libcxgb4, which the next QP gets (`c4iw_flush_qp`,
    /// `get_qhp`): a poll would follow freed memory, or complete requests of the other QP, which the device still
    /// executes.
    pub(super) const fn destroys(self, is_drained: bool) -> bool {
        is_drained || !matches!(self.0, CHELSIO | QLOGIC)
    }

    /// Whether QPs can use SRQs: which completions are left of such a QP is not known. libirdma does not remove them at
    /// its destruction (`irdma_uk_clean_cq`), and a poll follows the QP.
    pub(super) const fn has_srqs(self) -> bool {
        self.destroys(false) && self.0 != INTEL
    }

    /// Whether a post copies inline data. libmana ignores the flag, libocrdma does for datagrams, and libcxgb4 for a
    /// write before a short send (`post_write_cmpl`): the device reads the memory later. libbnxt_re copies several
    /// ranges to wrong places, until rdma-core 57 (`bnxt_re_build_sge`, `bnxt_re_copy_data_to_pb`). libhns copies more
    /// than 32 bytes over the ranges of other requests, and over those of receives (`fill_ext_sge_inl_data`).
    pub(super) const fn copies_inline(self) -> bool {
        !matches!(self.0, BROADCOM | CHELSIO | EMULEX | HUAWEI | MICROSOFT | UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_providers_do_wrong_is_not_used() {
        let mellanox = Vendor(0x02c9);
        let of = |vendor: Vendor| {
            let calls = [vendor.has_extended_calls(), vendor.resizes(), vendor.copies_inline()];
            assert!(vendor.destroys(true));
            (calls, [vendor.destroys(false), vendor.has_srqs()])
        };
        assert_eq!([Vendor(RXE), Vendor(SIW), mellanox].map(of), [([true; 3], [true; 2]); 3]);
        assert_eq!(of(Vendor(BROADCOM)), ([false; 3], [true; 2]));
        assert_eq!(of(Vendor(HUAWEI)), ([false, true, false], [true; 2]));
        assert_eq!(of(Vendor(PENSANDO)), ([false, true, true], [true; 2]));
        assert_eq!([EMULEX, MICROSOFT, UNKNOWN].map(Vendor).map(of), [([true, true, false], [true; 2]); 3]);
        assert_eq!(of(Vendor(CHELSIO)), ([true, true, false], [false; 2]));
        assert_eq!(of(Vendor(QLOGIC)), ([true; 3], [false; 2]));
        assert_eq!(of(Vendor(INTEL)), ([true, false, true], [true, false]));
    }
}
