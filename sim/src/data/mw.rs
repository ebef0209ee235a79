//! Memory windows.

use std::ops::Range;

use cmid_proto::Errno;
use cmid_proto::memory::Access;

use crate::data::completion::{WcStatus, opcode};
use crate::data::memory::Memory;
use crate::data::mr::Mr;
use crate::data::pd::{Pd, PdUse};
use crate::data::qp::{Local, Posted, Qp, Work};
use crate::data::window::{Bind, next_rkey};
use crate::fabric::Fabric;
use crate::fabric::world::World;
use crate::index::{MwNo, QpNo};

/// A memory window of type 2 (ibv_alloc_mw(3)): lends a part of a region to the peer of a QP, with rights and a key of
/// its own. Dropping it deallocates it, which also takes back what it is bound to.
///
/// [`Qp::post_bind`] binds it, [`Qp::post_invalidate`] takes it back. As long as it is bound, its region cannot be
/// deregistered (`EINVAL`); one that is dropped waits. It keeps the QP that it was bound through: destroyed meanwhile,
/// that one is in the error state, and gone with the window.
#[derive(Debug)]
pub struct Mw {
    fabric: Fabric,
    no: MwNo,
    rkey: u32,
    pd: PdUse,
    /// The QP that it was bound through last, unless it was taken back since; whether that was done, the device knows.
    bound_by: Option<QpNo>,
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
        Ok(Mw { fabric: self.fabric.clone(), no, rkey, pd, bound_by: None, over: false })
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
        self.fabric.with(|world| {
            if !self.over {
                // Of a device that is gone nothing is left.
                let _: Result<(), Errno> = world.ibv_dealloc_mw(self.pd.device, self.no);
            }
            world.rebind(self.no, None);
        });
    }
}

impl Qp {
    /// Binds a window to a part of a region, for the peer of this QP (`IBV_WR_BIND_MW`). The region needs
    /// [`Access::MW_BIND`], and [`Access::LOCAL_WRITE`] for `access` to have a right to write. The window has
    /// another key afterwards. Where the device objects, the completion is a
    /// [`MW_BIND_ERR`](crate::WcStatus::MW_BIND_ERR): so for an empty part, and for a window that is bound, which has to
    /// be invalidated first.
    ///
    /// # Errors
    /// As [`Qp::post_send`]; `EINVAL` also if window or region are of another domain than the QP, or if the
    /// region has not the rights.
    pub fn post_bind(
        &mut self,
        wr_id: u64,
        mw: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), Errno> {
        self.check(mw)?;
        let keyed_range = self.keyed_range(mr, range, access.needed_to_bind())?;
        let bind = Bind { window: mw.no, rkey: mw.rkey, keyed_range, access };
        self.fabric.with(|world| world.post_bind(self.no, wr_id, &bind))?;
        mw.rkey = next_rkey(mw.rkey);
        mw.bound_by = Some(self.no);
        Ok(())
    }

    /// Takes back what a window is bound to (`IBV_WR_LOCAL_INV`).
    ///
    /// # Errors
    /// As [`Qp::post_send`]; `EINVAL` also unless it was through this QP that the window was bound last, and not invalidated
    /// since.
    pub fn post_invalidate(&mut self, wr_id: u64, mw: &mut Mw) -> Result<(), Errno> {
        self.check(mw)?;
        if mw.bound_by != Some(self.no) {
            return Err(Errno::EINVAL);
        }
        self.fabric.with(|world| world.post_invalidate(self.no, wr_id, mw.rkey))?;
        mw.bound_by = None;
        Ok(())
    }

    /// A window of another domain than the QP's cannot be named.
    fn check(&self, mw: &Mw) -> Result<(), Errno> {
        let own = self.fabric.with(|world| world.queues.pairs.get(&self.no).map(|pair| pair.pd));
        if self.fabric.is(&mw.fabric) && own == Some(mw.pd.no) { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl World {
    fn post_bind(&mut self, qp: QpNo, wr_id: u64, bind: &Bind) -> Result<(), Errno> {
        let work = Work { wr_id, opcode: opcode::BIND_MW, memory: Local::Bound(bind.keyed_range) };
        let obey = |memory: &mut Memory, pd| memory.bind_mw(qp, pd, bind);
        if self.post_command(qp, work, WcStatus::MW_BIND_ERR, obey)? == Posted::Done {
            self.rebind(bind.window, Some(qp));
        }
        Ok(())
    }

    fn post_invalidate(&mut self, qp: QpNo, wr_id: u64, rkey: u32) -> Result<(), Errno> {
        let work = Work { wr_id, opcode: opcode::LOCAL_INV, memory: Local::Nothing };
        let obey = |memory: &mut Memory, _| memory.invalidate_mw(qp.host, rkey);
        self.post_command(qp, work, WcStatus::LOC_QP_OP_ERR, obey).map(|_| ())
    }

    /// A window is bound through this QP now, or gone.
    fn rebind(&mut self, window: MwNo, by: Option<QpNo>) {
        if let Some(qp) = self.queues.rebind(window, by) {
            self.destroy_qp(qp);
        }
    }
}
