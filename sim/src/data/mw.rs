//! Memory windows.

use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use cmid_proto::datapath::{
    Access, Block, CreateReason, MemoryRegion, MemoryWindow, OfPd, Part, PostCall, PostReason, SendFlags, Sge,
    Unposted, WcOpcode,
};
use cmid_proto::memory::{self, Pd as _};
use cmid_proto::{Errno, ErrorWith};

use crate::data::action::{Action, Command, Local};
use crate::data::blocks::{self, Piece, loaded_part};
use crate::data::fault::Resource;
use crate::data::mr::Mr;
use crate::data::pd::{Pd, PdUse};
use crate::data::pending::Pending;
use crate::data::qp::Qp;
use crate::data::window::{Bind, next_rkey};
use crate::fabric::Fabric;
use crate::fabric::shared::{Parked, Shared};
use crate::fabric::world::World;
use crate::index::{MwNo, PdNo, QpNo};

/// A memory window of type 2 (ibv_alloc_mw(3)): gives the peer of a QP access to a part of a region, with its own
/// rights and key. Dropping it deallocates it, which also removes its binding; later, while its requests are in flight.
///
/// While it may be bound, its region can be neither deregistered nor re-registered; a dropped region is deregistered later. The window
/// keeps the QP through which it was bound. If that QP is destroyed, it enters the error state, and is removed with the
/// window.
#[derive(Debug)]
pub struct Mw {
    fabric: Fabric,
    no: MwNo,
    rkey: u32,
    pd: PdUse,
    /// Whether it is deallocated.
    over: bool,
    parts: Vec<LentPart>,
    /// The last request of each QP that names it.
    requests: Vec<(QpNo, u64)>,
}

/// A part to which a window may be bound.
#[derive(Debug)]
struct LentPart {
    /// The remote key of the bind.
    rkey: u32,
    part: Part<Piece>,
    /// Whether it lets the peer write.
    is_written: bool,
}

impl LentPart {
    /// Ends what the device may still write, as in `cmid-verbs`.
    fn settle(&mut self, pd: &PdUse) -> bool {
        let piece = self.part.block_mut().and_then(Block::piece_mut);
        piece.is_none_or(|piece| !self.is_written || !pd.copies_late() || piece.renew())
    }
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd) -> Result<Mw, CreateReason> {
        let fabric = pd.fabric.clone();
        fabric.shared().sweep();
        let pd = pd.acquire()?;
        let (no, rkey) = fabric.with(|world| {
            world.grant(pd.device.host, Resource::Mw)?;
            world.ibv_alloc_mw(pd.device, pd.no)
        })?;
        Ok(Mw { fabric, no, rkey, pd, over: false, parts: Vec::new(), requests: Vec::new() })
    }
}

impl MemoryWindow for Mw {
    type Piece = Piece;

    fn reclaim(&mut self) -> Option<Part<Piece>> {
        let at = self.fabric.with(|world| {
            let bindings = world.domains.bindings(self.pd.no);
            let is_bound = |rkey| bindings.as_ref().is_some_and(|bindings| bindings.is_bound(self.no.0, rkey));
            self.parts.iter().position(|lent| !is_bound(lent.rkey))
        })?;
        let is_over = self.parts.get_mut(at)?.settle(&self.pd);
        is_over.then(|| loaded_part(self.parts.remove(at).part))
    }

    fn rkey(&self) -> u32 {
        self.rkey
    }

    /// # Errors
    /// `EIO` after the device is removed
    /// ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    fn dealloc(mut self) -> Result<Vec<Part<Piece>>, ErrorWith<Mw, Errno>> {
        let deallocated = self.fabric.with(|world| {
            if world.queues.may_execute(&self.requests) {
                return Err(Errno::EBUSY);
            }
            world.ibv_dealloc_mw(self.pd.device, self.no)
        });
        if let Err(errno) = deallocated {
            return Err(ErrorWith::new(self, errno));
        }
        self.over = true;
        // What cannot be settled now goes as if the window were dropped.
        let mut own = Vec::new();
        for mut lent in mem::take(&mut self.parts) {
            if lent.settle(&self.pd) {
                own.push(loaded_part(lent.part));
            } else {
                self.parts.push(lent);
            }
        }
        Ok(own)
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let (requests, parts) = (mem::take(&mut self.requests), Mutex::new(mem::take(&mut self.parts)));
        let (pd, is_tried) = (self.pd.clone(), AtomicBool::new(false));
        self.fabric.shared().retire(LeftMw { no: self.no, over: self.over, pd, requests, parts, is_tried });
    }
}

/// A window whose handle is dropped.
#[derive(Debug)]
struct LeftMw {
    no: MwNo,
    over: bool,
    pd: PdUse,
    requests: Vec<(QpNo, u64)>,
    parts: Mutex<Vec<LentPart>>,
    /// Whether it is deallocated, and what cannot be settled is that of its QPs, whose ends settle it.
    is_tried: AtomicBool,
}

impl Parked for LeftMw {
    fn try_end(&self, shared: &Shared) -> bool {
        if !self.over && shared.with(|world| world.queues.may_execute(&self.requests)) {
            return false;
        }
        if !self.is_tried.swap(true, Ordering::Relaxed) {
            shared.with(|world| {
                if !self.over {
                    // This fails only if the device is removed. Nothing remains then.
                    let _: Result<(), Errno> = world.ibv_dealloc_mw(self.pd.device, self.no);
                }
                world.forget_window(self.pd.no, self.no);
            });
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.retain_mut(|lent| !lent.settle(&self.pd));
        }
        let has_parts = !self.parts.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        !has_parts || shared.with(|world| self.requests.iter().all(|(qp, _)| !world.queues.pairs.contains_key(qp)))
    }
}

impl Qp {
    pub(super) fn bind_window(
        &self,
        wr_id: u64,
        mw: &mut Mw,
        mr: &Mr,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), PostReason> {
        self.check(mw)?;
        let needed = access.needed_to_bind().ok_or(PostReason::NotOfWindow(access))?;
        let keyed_range = self.keyed_range(&mr.sge(range), needed)?;
        let may = |world: &mut World| Some(world.domains.bindings(mw.pd.no)?.may_bind(mw.no.0));
        if self.fabric.with(may) == Some(false) {
            return Err(PostReason::TooManyBinds);
        }
        let bind = Bind { rkey: mw.rkey, keyed_range, access };
        self.enqueue(wr_id, mw, WcOpcode::BIND_MW, Local::Bound(keyed_range), Command::Bind(bind))?;
        // The device executes it later, also if the doorbell is refused.
        mw.rkey = next_rkey(mw.rkey);
        let bind = memory::Bind { qp_num: self.no.num, lkey: keyed_range.key, rkey: mw.rkey, access };
        self.fabric.with(|world| {
            if let Some(bindings) = world.domains.bindings(mw.pd.no) {
                bindings.bind(mw.no.0, bind);
            }
            let rung = world.ring(self.no);
            if let (Err(_), Some(bindings)) = (rung, world.domains.bindings(mw.pd.no)) {
                bindings.bind_failed(mw.no.0);
            }
            rung
        })
    }

    /// As `bind_window`, to a part of a block, which the window has then.
    pub(super) fn bind_block(
        &self,
        wr_id: u64,
        mw: &mut Mw,
        part: Part<Piece>,
        access: Access,
    ) -> Result<(), Unposted<Piece>> {
        let checked = part.place(access.lets_peers_write()).map(drop);
        let posted = checked.and_then(|()| {
            self.fabric.with(|world| blocks::flush(std::slice::from_ref(&part), &self.fabric, world));
            let Sge { mr, offset, len } = blocks::sge(&part, self.pd()?).ok_or(PostReason::NotRegistered)?;
            self.bind_window(wr_id, mw, mr, offset..offset + len.unwrap_or_default(), access)
        });
        match posted {
            Ok(()) | Err(PostReason::Device(_)) => {
                mw.parts.push(LentPart { rkey: mw.rkey, part, is_written: access.lets_peers_write() });
                posted.map_err(|reason| ErrorWith::new(None, self.error(PostCall::Bind, reason)))
            }
            Err(reason) => Err(ErrorWith::new(Some(part.into()), self.error(PostCall::Bind, reason))),
        }
    }

    pub(super) fn invalidate_window(&self, wr_id: u64, mw: &mut Mw) -> Result<(), PostReason> {
        self.check(mw)?;
        let (no, qp_num) = (mw.no.0, self.no.num);
        let may = |world: &mut World| Some(world.domains.bindings(mw.pd.no)?.may_invalidate(no, qp_num));
        if self.fabric.with(may) != Some(true) {
            return Err(PostReason::NotBound);
        }
        let command = Command::Invalidate(mw.rkey);
        self.enqueue(wr_id, mw, WcOpcode::LOCAL_INV, Local::Nothing, command)?;
        self.fabric.with(|world| {
            let number = world.domains.bindings(mw.pd.no).map(|bindings| bindings.invalidate(no, qp_num));
            let rung = world.ring(self.no);
            if let (Err(_), Some(number), Some(bindings)) = (rung, number, world.domains.bindings(mw.pd.no)) {
                bindings.invalidate_failed(number);
            }
            rung
        })
    }

    fn enqueue(
        &self,
        wr_id: u64,
        mw: &mut Mw,
        opcode: WcOpcode,
        local: Local,
        command: Command,
    ) -> Result<(), PostReason> {
        let work = Pending::new(wr_id, opcode, SendFlags::SIGNALED, local, Action::Command(command));
        let number = self.fabric.with(|world| {
            world.enqueue(self.no, work)?;
            world.queues.pairs.get(&self.no).map(|pair| pair.sequence).ok_or(PostReason::Gone)
        })?;
        mw.requests.retain(|(qp, _)| *qp != self.no);
        mw.requests.push((self.no, number));
        Ok(())
    }

    /// Refuses a window of another domain than the QP's.
    fn check(&self, mw: &Mw) -> Result<(), PostReason> {
        let own = self.pd()?;
        if self.fabric.is(&mw.fabric) && own == mw.pd.no { Ok(()) } else { Err(PostReason::OtherPd(OfPd::Mw)) }
    }
}

impl World {
    /// Ends the binding of a window that is deallocated.
    fn forget_window(&mut self, pd: PdNo, window: MwNo) {
        self.rebind(window, None);
        if let Some(bindings) = self.domains.bindings(pd) {
            bindings.dealloc(window.0);
        }
    }

    /// Records the QP of a window's bind, or that the window is unbound.
    pub(crate) fn rebind(&mut self, window: MwNo, by: Option<QpNo>) {
        if let Some(qp) = self.queues.rebind(window, by) {
            self.destroy_qp(qp);
        }
    }
}
