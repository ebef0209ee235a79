//! The maximum capacities of the devices.

use cmid_proto::datapath::Maxima;

/// The maximum capacities, those of rxe (rxe_param.h).
pub(crate) const MAXIMA: Maxima =
    Maxima { qp_wr: 1 << 20, sge: 32, inline: 512, cqe: (1 << 15) - 1, comp_vectors: 4, srq_wr: 1 << 20, srq_sge: 27 };
