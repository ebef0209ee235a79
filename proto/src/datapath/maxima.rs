//! The maximum capacities of a device, and the checks of a request against them.

use super::{Capacity, Caps, CreateReason, SrqCaps};

/// The maximum capacities of a device (`struct ibv_device_attr`).
///
/// The simulator checks a request before it creates the object. `cmid_verbs` does so after a device has refused one, to
/// learn which capacity is the reason.
#[doc(alias = "ibv_device_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Maxima {
    /// Of the work requests of a queue of a QP (`max_qp_wr`).
    pub qp_wr: u32,
    /// Of the ranges of a work request (`max_sge`).
    pub sge: u32,
    /// Of inline data, in bytes; `u32::MAX` if it is not known.
    pub inline: u32,
    /// Of the depth of a CQ (`max_cqe`).
    pub cqe: u32,
    /// The number of completion vectors (`num_comp_vectors`).
    pub comp_vectors: u32,
    /// Of the receives of an SRQ (`max_srq_wr`).
    pub srq_wr: u32,
    /// Of the ranges of a receive of an SRQ (`max_srq_sge`).
    pub srq_sge: u32,
}

impl Maxima {
    /// Returns what makes a QP impossible; `None` if each capacity by itself is possible.
    #[must_use]
    pub fn qp(&self, caps: &Caps) -> Option<CreateReason> {
        first_above(&[
            (Capacity::MaxSendWr, caps.max_send_wr, self.qp_wr),
            (Capacity::MaxRecvWr, caps.max_recv_wr, self.qp_wr),
            (Capacity::MaxSendSge, caps.max_send_sge, self.sge),
            (Capacity::MaxRecvSge, caps.max_recv_sge, self.sge),
            (Capacity::MaxInline, caps.max_inline, self.inline),
        ])
    }

    /// Returns what makes a CQ impossible.
    #[must_use]
    pub fn cq(&self, depth: u32, vector: u32) -> Option<CreateReason> {
        match self.comp_vectors {
            _ if depth == 0 => Some(CreateReason::Zero(Capacity::Depth)),
            vectors if vector >= vectors => Some(CreateReason::NoVector { vector, vectors }),
            _ => first_above(&[(Capacity::Depth, depth, self.cqe)]),
        }
    }

    /// Returns what makes an SRQ impossible.
    #[must_use]
    pub fn srq(&self, caps: SrqCaps) -> Option<CreateReason> {
        if caps.max_wr == 0 {
            return Some(CreateReason::Zero(Capacity::SrqMaxWr));
        }
        first_above(&[
            (Capacity::SrqMaxWr, caps.max_wr, self.srq_wr),
            (Capacity::SrqMaxSge, caps.max_sge, self.srq_sge),
        ])
    }
}

/// Returns the reason of the first capacity that is above its maximum.
fn first_above(capacities: &[(Capacity, u32, u32)]) -> Option<CreateReason> {
    let above = capacities.iter().find(|(_, asked, max)| asked > max);
    above.map(|&(capacity, asked, max)| CreateReason::TooLarge { capacity, asked, max })
}
