//! Address handles.

use core::fmt;
use core::ptr::NonNull;

use cmid_proto::datapath::{AhAttr, Completion, CreateReason, GRH_LEN, GlobalRoute};

use crate::data::pd::PdUse;
use crate::data::{Mr, Pd};
use crate::errno;
use crate::ffi::{self, ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_grh, ibv_wc};

static_assertions::const_assert!(size_of::<ibv_grh>() == GRH_LEN);

/// An address handle: the destination of datagrams (ibv_create_ah(3)). A [`Pd`] creates it. Dropping it destroys it.
///
/// Keep it until the sends to it have completed. An earlier drop is memory-safe, because the provider copies the
/// address while posting. But some devices, such as soft-RoCE, look the handle up by its number when they execute the
/// send. A queued send then fails, or goes to the destination of the next handle with that number. Posting does not
/// count the uses of a handle: that would cost two atomic operations per datagram. Share one as `Arc<Ah>` between
/// several owners.
#[doc(alias = "ibv_ah")]
pub struct Ah {
    raw: NonNull<ibv_ah>,
    // Dropped after the handle.
    pd: PdUse,
}

// SAFETY: libibverbs is thread-safe, and an address handle is tied to no thread.
unsafe impl Send for Ah {}
// SAFETY: libibverbs is thread-safe, and nothing is written to the ibv_ah after its creation.
unsafe impl Sync for Ah {}

impl Ah {
    pub(crate) fn create(pd: &Pd, path: &AhAttr) -> Result<Ah, CreateReason> {
        let mut attr = path_to_c(path);
        let pd = pd.enter()?;
        // SAFETY: the PD is open, because it has a user, and the attributes are read during the call.
        let raw = errno::of_new(|| unsafe { ffi::ibv_create_ah(pd.as_ptr(), &raw mut attr) })?;
        Ok(Ah { raw, pd })
    }

    pub(crate) fn create_from(pd: &Pd, completion: &Completion, mr: &Mr, offset: usize) -> Result<Ah, CreateReason> {
        let port_num = pd.0.port_num();
        let mut grh = Grh([0; GRH_LEN]);
        mr.copy_out(offset, &mut grh.0)?;
        let mut completion = *completion;
        let pd = pd.enter()?;
        // SAFETY: the PD is open, because it has a user. A Completion is laid out as an ibv_wc, and a Grh has the size
        // and the alignment of an ibv_grh (asserted in completion.rs and below). Every bit pattern is a value of both.
        // Both are read during the call.
        let raw = errno::of_new(|| unsafe {
            ffi::ibv_create_ah_from_wc(
                pd.as_ptr(),
                (&raw mut completion).cast::<ibv_wc>(),
                (&raw mut grh).cast::<ibv_grh>(),
                port_num,
            )
        })?;
        Ok(Ah { raw, pd })
    }
}

/// A copy of a global route header, with the alignment of C's structure.
#[repr(C, align(8))]
struct Grh([u8; GRH_LEN]);

static_assertions::const_assert!(size_of::<Grh>() == size_of::<ibv_grh>());
static_assertions::const_assert!(align_of::<Grh>() == align_of::<ibv_grh>());

impl Ah {
    pub(crate) fn as_ptr(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }

    /// Whether it belongs to this protection domain, and thus to the same device.
    pub(crate) fn is_of(&self, pd: &PdUse) -> bool {
        self.pd.is_of(pd)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if self.pd.inner().is_inherited() {
            return;
        }
        // SAFETY: made by ibv_create_ah and destroyed only here; its PD is still open. No call that posts to it is
        // under way: such a call borrows it. If the kernel refuses, it is leaked.
        let _ = unsafe { ffi::ibv_destroy_ah(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Ah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ah").finish_non_exhaustive()
    }
}

pub(crate) fn path_from_c(attr: &ibv_ah_attr) -> AhAttr {
    let grh = (attr.is_global != 0).then_some(GlobalRoute {
        // SAFETY: every bit pattern is a value of both arms.
        dgid: unsafe { attr.grh.dgid.raw },
        flow_label: attr.grh.flow_label,
        sgid_index: attr.grh.sgid_index,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
    });
    AhAttr {
        grh,
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        port_num: attr.port_num,
    }
}

fn path_to_c(path: &AhAttr) -> ibv_ah_attr {
    let route = path.grh.unwrap_or_default();
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: route.dgid },
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        dlid: path.dlid,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        is_global: u8::from(path.grh.is_some()),
        port_num: path.port_num,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_way_to_c_and_back() {
        let mut dgid = [0; 16];
        dgid[10..].copy_from_slice(&[0xff, 0xff, 10, 99, 0, 2]);
        let route = GlobalRoute { dgid, flow_label: 0xf_ffff, sgid_index: 3, hop_limit: 64, traffic_class: 8 };
        let path = AhAttr { grh: Some(route), dlid: 1, sl: 2, src_path_bits: 3, static_rate: 4, port_num: 5 };
        assert_eq!(path_from_c(&path_to_c(&path)), path);
        let local = AhAttr { grh: None, ..path };
        assert_eq!(path_from_c(&path_to_c(&local)), local);
    }
}
