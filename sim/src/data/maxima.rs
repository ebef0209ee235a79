//! The maximum capacities of the devices.

use cmid_proto::datapath::Maxima;

use crate::fabric::world::World;
use crate::index::HostNo;

/// The number of completion vectors of each device.
pub(crate) const COMP_VECTORS: u32 = 4;

/// Those of rxe (rxe_param.h).
const RXE: Maxima = Maxima {
    qp_wr: 1 << 20,
    sge: 32,
    inline: 512,
    cqe: (1 << 15) - 1,
    comp_vectors: COMP_VECTORS,
    srq_wr: 1 << 20,
    srq_sge: 27,
};

/// Those of siw (siw.h, siw-abi.h): `SIW_MAX_QP_WR`, `SIW_MAX_SGE`, `SIW_MAX_INLINE`, half of `SIW_MAX_CQE`, `SIW_MAX_SRQ_WR`.
const SIW: Maxima = Maxima {
    qp_wr: 1 << 15,
    sge: 6,
    inline: 80,
    cqe: 50 << 15,
    comp_vectors: COMP_VECTORS,
    srq_wr: 10 << 15,
    srq_sge: 6,
};

impl World {
    /// Returns the maximum capacities of a host's devices.
    pub(crate) fn maxima(&self, host: HostNo) -> Maxima {
        if self.is_iwarp(host) { SIW } else { RXE }
    }
}
