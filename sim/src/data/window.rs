//! The kernel's and the device's side of memory windows (`rxe_mw.c`).

use cmid_proto::Errno;
use cmid_proto::memory::Access;

use crate::data::memory::{Keyed, Memory};
use crate::data::space::{KeyedRange, Stretch};
use crate::fabric::world::World;
use crate::index::{HostNo, MrHandle, MwNo, PdNo, QpNo};

/// `struct ib_mw`, of type 2.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) host: HostNo,
    pub(super) pd: PdNo,
    pub(super) rkey: u32,
    pub(super) bound: Option<Bound>,
}

/// The binding of a window.
#[derive(Debug)]
pub(super) struct Bound {
    /// The QP with the peer that may use the window.
    pub(super) qp: QpNo,
    pub(super) mr: MrHandle,
    /// The MR's key at the time of the bind. A new object under the same handle is another MR.
    pub(super) lkey: u32,
    pub(super) range: Stretch,
    pub(super) access: Access,
}

impl Window {
    pub(crate) fn is_bound_to(&self, mr: MrHandle, lkey: u32) -> bool {
        self.bound.as_ref().is_some_and(|bound| (bound.mr, bound.lkey) == (mr, lkey))
    }
}

/// A work request that binds a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    /// The key of the window before the bind. The device knows the window by it.
    pub(crate) rkey: u32,
    pub(crate) keyed_range: KeyedRange,
    pub(crate) access: Access,
}

/// The key after the next bind (`ibv_inc_rkey`).
pub(crate) const fn next_rkey(rkey: u32) -> u32 {
    rkey & !0xff | (rkey.wrapping_add(1) & 0xff)
}

impl World {
    /// `rxe_invalidate_mw`: removes the binding of the window with this key. `None` if the device rejects it. If the
    /// window is not bound, rxe accepts and follows null pointers (`rxe_do_invalidate_mw`).
    pub(super) fn invalidate_mw(&mut self, host: HostNo, rkey: u32) -> Option<()> {
        let window = self.memory.window_of(host, rkey)?;
        let bound = window.bound.take();
        self.counters.unbound_invalidated += u64::from(bound.is_none());
        bound.map(drop)
    }
}

impl Memory {
    /// `ib_uverbs_alloc_mw`.
    pub(crate) fn alloc_mw(&mut self, host: HostNo, pd: PdNo) -> Result<(MwNo, u32), Errno> {
        let rkey = self.new_key()?;
        self.count_user(host, pd)?;
        self.last_window += 1;
        let no = MwNo(self.last_window);
        self.windows.insert(no, Window { host, pd, rkey, bound: None });
        self.keyed.insert(rkey, Keyed::Mw(no));
        Ok((no, rkey))
    }

    /// `uverbs_free_mw`. The window may be bound.
    pub(crate) fn dealloc_mw(&mut self, no: MwNo) -> Result<(), Errno> {
        let window = self.windows.remove(&no).ok_or(Errno::ENOENT)?;
        self.free_key(window.rkey);
        self.discount_user(window.pd);
        Ok(())
    }

    /// `rxe_bind_mw`: binds a window to a part of an MR when a QP of `pd` executes the work request. `None` if the
    /// device rejects it, else the window.
    pub(crate) fn bind_mw(&mut self, qp: QpNo, pd: PdNo, bind: &Bind) -> Option<MwNo> {
        let Keyed::Mw(no) = *self.keyed.get(&bind.rkey)? else { return None };
        let bound = self.check_bind_mw(qp, pd, no, bind)?;
        let window = self.windows.get_mut(&no)?;
        let (old, new) = (window.rkey, next_rkey(window.rkey));
        (window.bound, window.rkey) = (Some(bound), new);
        self.keyed.remove(&old);
        self.keyed.insert(new, Keyed::Mw(no));
        Some(no)
    }

    /// `rxe_check_bind_mw`: rejects an empty part, and a window that is bound, which must be invalidated first.
    fn check_bind_mw(&self, qp: QpNo, pd: PdNo, window: MwNo, bind: &Bind) -> Option<Bound> {
        let &Bind { keyed_range, access, .. } = bind;
        let window = self.windows.get(&window).filter(|window| window.pd == pd)?;
        if window.bound.is_some() || keyed_range.len == 0 {
            return None;
        }
        let Keyed::Mr(mr) = *self.keyed.get(&keyed_range.key)? else { return None };
        let hardware = self.mrs.get(&mr)?.hardware.filter(|hardware| hardware.pd == pd)?;
        let written = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let legal = hardware.access.contains(Access::MW_BIND)
            && (!written || hardware.access.contains(Access::LOCAL_WRITE))
            && hardware.range.contains(keyed_range.stretch());
        legal.then_some(Bound { qp, mr, lkey: keyed_range.key, range: keyed_range.stretch(), access })
    }

    fn window_of(&mut self, host: HostNo, rkey: u32) -> Option<&mut Window> {
        let Keyed::Mw(no) = *self.keyed.get(&rkey)? else { return None };
        self.windows.get_mut(&no).filter(|window| window.host == host)
    }

    /// Returns the memory that the peer of a window's QP may access (`rxe_lookup_mw`); `None` once the MR is gone or
    /// has moved.
    pub(crate) fn through_window(&self, qp: QpNo, pd: PdNo, no: MwNo, needs: Access) -> Option<Stretch> {
        let window = self.windows.get(&no).filter(|window| (window.host, window.pd) == (qp.host, pd))?;
        let bound = window.bound.as_ref().filter(|bound| bound.qp == qp && bound.access.contains(needs))?;
        let mr = self.mrs.get(&bound.mr).filter(|mr| mr.keys.lkey == bound.lkey)?;
        let hardware = mr.hardware.filter(|hardware| hardware.range.contains(bound.range))?;
        Some(if self.windows_without_range { hardware.range } else { bound.range })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::memory::Request;
    use crate::fabric::config::{Config, Rereg};
    use cmid_proto::memory::Changes;

    #[test]
    fn a_window_shows_nothing_of_a_region_that_has_moved_or_has_become_another() {
        for new_keys_on_rereg in [false, true] {
            let config = Config { rereg: Rereg::All, new_keys_on_rereg, ..Config::default() };
            let (mut memory, host) = (Memory::default(), HostNo(0));
            let qp = QpNo { host, num: 17 };
            let pd = memory.alloc_pd(host);
            let [old, new] = [0; 2].map(|_| memory.space.map(vec![0; 64]));
            let (mr, keys) = memory.reg_mr(&config, host, pd, old, Access::MW_BIND).unwrap();
            let (window, rkey) = memory.alloc_mw(host, pd).unwrap();
            let keyed_range = KeyedRange { addr: old.addr, key: keys.lkey, len: 8 };
            let bind = Bind { rkey, keyed_range, access: Access::REMOTE_READ };
            assert_eq!(memory.bind_mw(qp, pd, &bind), Some(window));
            let shown = Some(keyed_range.stretch());
            assert_eq!(memory.through_window(qp, pd, window, Access::REMOTE_READ), shown);
            // A change of the MR's rights does not affect the window, but the MR's keys may change.
            let mut request =
                Request { flags: Changes::ACCESS, pd: None, range: new, access: Access::MW_BIND | Access::REMOTE_READ };
            memory.rereg_mr(&config, host, mr, &request, || None).unwrap();
            let expected = shown.filter(|_| !new_keys_on_rereg);
            assert_eq!(memory.through_window(qp, pd, window, Access::REMOTE_READ), expected);
            request.flags = Changes::TRANSLATION;
            memory.rereg_mr(&config, host, mr, &request, || None).unwrap();
            assert_eq!(memory.through_window(qp, pd, window, Access::REMOTE_READ), None);
            // A window that is bound to a replaced MR does not block its deregistration.
            let expected = if new_keys_on_rereg { Ok(()) } else { Err(Errno::EINVAL) };
            assert_eq!(memory.dereg_mr(host, mr), expected);
        }
    }

    #[test]
    fn a_bind_changes_the_low_byte_only() {
        assert_eq!((next_rkey(0x101), next_rkey(0x1ff)), (0x102, 0x100));
    }
}
