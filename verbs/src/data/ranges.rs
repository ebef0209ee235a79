//! The ranges of a work request.

use cmid_proto::Errno;
use cmid_proto::datapath::Sge;
use smallvec::SmallVec;

use crate::accounting::wr_ring::NO_KEY;
use crate::data::Mr;
use crate::ffi::ibv_sge;

/// The non-empty ranges of a work request. Some devices interpret a length of 0 as 2 GiB.
pub(super) type Sges = SmallVec<[ibv_sge; 4]>;

/// Checks and converts a range that the device reads from. It must be of the PD of the queue, so that work in flight
/// there pins it (in_flight.rs).
#[inline(always)]
pub(super) fn source(pd: usize, sge: &Sge<'_, Mr>) -> Result<ibv_sge, Errno> {
    match sge.mr.ibv_sge(sge) {
        Some(range) if sge.mr.source == pd => Ok(range),
        _ => Err(refused()),
    }
}

/// Checks and converts a range that the device or its provider writes to: as [`source`], and it must be writable. Not
/// every provider checks the key.
#[inline(always)]
pub(super) fn target(pd: usize, sge: &Sge<'_, Mr>) -> Result<ibv_sge, Errno> {
    match sge.mr.ibv_sge(sge) {
        Some(range) if sge.mr.target == pd => Ok(range),
        _ => Err(refused()),
    }
}

/// Returns the errno for a range that cannot be posted. Not inlined, so that the errno is not loaded before each check.
#[cold]
#[inline(never)]
fn refused() -> Errno {
    core::hint::black_box(Errno::EINVAL)
}

/// Converts the ranges that are not empty.
#[inline]
pub(super) fn ranges(
    pd: usize,
    sges: &[Sge<'_, Mr>],
    max: u32,
    range: impl Fn(usize, &Sge<'_, Mr>) -> Result<ibv_sge, Errno>,
) -> Result<Sges, Errno> {
    let mut list = Sges::new();
    for sge in sges {
        let sge = range(pd, sge)?;
        if sge.length != 0 {
            list.push(sge);
        }
    }
    if list.len() > max as usize { Err(Errno::EINVAL) } else { Ok(list) }
}

/// Adds an empty range to a receive without ranges, on iWARP: libsiw refuses one without (`push_recv_wqe`).
#[inline]
pub(super) fn add_empty(sges: &mut Sges, is_iwarp: bool) {
    if sges.is_empty() && is_iwarp {
        sges.push(ibv_sge { addr: 0, length: 0, lkey: 0 });
    }
}

/// Returns the key that a range pins; [`NO_KEY`] for an empty or inline range.
#[inline]
pub(super) fn pinned_key(sge: &ibv_sge, is_inline: bool) -> u32 {
    if sge.length == 0 || is_inline { NO_KEY } else { sge.lkey }
}

/// Returns the keys that several ranges pin.
#[inline]
pub(super) fn pinned_keys(sges: &[ibv_sge], is_inline: bool) -> SmallVec<[u32; 4]> {
    sges.iter().map(|sge| pinned_key(sge, is_inline)).collect()
}
