//! Memory windows.

use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::memory::Access;

use crate::data::mr::Mr;
use crate::data::pd::{Pd, PdUse};
use crate::data::qp::Qp;
use crate::data::window::{MwNo, next_rkey};
use crate::fabric::Fabric;

/// A memory window of type 1 (ibv_alloc_mw(3)): lends a part of a region to peers, with rights and a key of its own.
/// Dropping it deallocates it, which ends what it was bound to.
#[derive(Debug)]
pub struct Mw {
    fabric: Fabric,
    no: MwNo,
    rkey: u32,
    pd: PdUse,
    /// It has been deallocated.
    over: bool,
}

impl Pd {
    /// A memory window, bound to nothing.
    ///
    /// # Errors
    /// `EINVAL` if the domain is gone, `EIO` if its device is.
    pub fn alloc_mw(&self) -> Result<Mw, Errno> {
        let pd = self.acquire().map_err(|refused| refused.errno())?;
        let (no, rkey) = self.fabric.with(|world| world.ibv_alloc_mw(pd.device, pd.no))?;
        Ok(Mw { fabric: self.fabric.clone(), no, rkey, pd, over: false })
    }
}

impl Mw {
    /// The key that a peer names it by. Every bind changes it.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Deallocates it (ibv_dealloc_mw(3)), bound or not.
    ///
    /// # Errors
    /// With the window; `EIO` once the device is removed
    /// ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    pub fn dealloc(mut self) -> Result<(), (Mw, Errno)> {
        match self.fabric.with(|world| world.ibv_dealloc_mw(self.pd.device, self.no)) {
            Ok(()) => {
                self.over = true;
                Ok(())
            }
            Err(errno) => Err((self, errno)),
        }
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if !self.over {
            // Of a device that is gone nothing is left.
            let _: Result<(), Errno> = self.fabric.with(|world| world.ibv_dealloc_mw(self.pd.device, self.no));
        }
    }
}

impl Qp {
    /// Binds a window to a range of a region, which needs [`Access::MW_BIND`], or to nothing if the range is empty
    /// (ibv_bind_mw(3)). The window has another key afterwards. Where the device objects, the completion is a
    /// [`MW_BIND_ERR`](crate::WcStatus::MW_BIND_ERR).
    ///
    /// # Errors
    /// As [`Qp::post_send`]; `EPERM` if window and region are of different domains.
    pub fn post_bind(
        &mut self,
        wr_id: u64,
        mw: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno> {
        let place = mr.place(range)?;
        if mr.pd().is_none_or(|pd| pd.no != mw.pd.no) {
            return Err(Errno::EPERM);
        }
        self.fabric.with(|world| world.post_bind(self.no, wr_id, mw.no, place, access))?;
        mw.rkey = next_rkey(mw.rkey);
        Ok(())
    }
}
