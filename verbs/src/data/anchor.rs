//! An internal id that keeps a device's context open.

use core::net::{IpAddr, SocketAddr};
use core::ptr::{self, NonNull};
use std::sync::Arc;

use cmid_proto::Errno;

use crate::errno;
use crate::ffi::{self, c_int, ibv_context, ibv_gid, rdma_cm_id, rdma_port_space};
use crate::librdmacm::Channel;
use crate::process::Process;
use crate::sockaddr::CAddr;

/// The event channel for the [`Anchor`]s of a device and its siblings. It is never read: an anchor's events
/// (DEVICE_REMOVAL, ADDR_CHANGE) are discarded with the anchor.
pub(crate) struct Home(Channel);

impl Home {
    pub(crate) const fn new(channel: Channel) -> Self {
        Home(channel)
    }

    /// The process that opened the channel.
    pub(super) fn process(&self) -> Process {
        self.0.process()
    }
}

/// An `rdma_cm_id` that is bound to an address of a device. librdmacm then counts it as a user of that device
/// (rdma_bind_addr(3)). It needs no descriptor. Its port is of the space `RDMA_PS_IB`, so it does not conflict with
/// ports of TCP or UDP. Dropping it destroys the id; any thread may do that.
pub(crate) struct Anchor {
    raw: NonNull<rdma_cm_id>,
    // Dropped after the id.
    home: Arc<Home>,
}

// SAFETY: librdmacm ties an rdma_cm_id to no thread, and no other code uses this one.
unsafe impl Send for Anchor {}
// SAFETY: the only call on it is its destruction, by its owner.
unsafe impl Sync for Anchor {}

impl Anchor {
    /// The process that made it.
    pub(super) fn process(&self) -> Process {
        self.home.process()
    }

    /// Creates an anchor at the device of this context. It binds the first address that belongs to the device: `own`,
    /// the address of the id that uses the device, or an address among the GIDs of the port.
    ///
    /// # Errors
    /// The errno of rdma_create_id(3). If no address can be bound, the errno of rdma_bind_addr(3) for `own`; without
    /// any address `EADDRNOTAVAIL`.
    pub(crate) fn at(
        owner: &Arc<Home>,
        verbs: NonNull<ibv_context>,
        port: u8,
        own: Option<SocketAddr>,
    ) -> Result<Self, Errno> {
        let mut failure = Errno::EADDRNOTAVAIL;
        if let Some(own) = own {
            match Anchor::bound(owner, verbs, own) {
                Ok(anchor) => return Ok(anchor),
                Err(errno) => failure = errno,
            }
        }
        gids(verbs, port).find_map(|addr| Anchor::bound(owner, verbs, addr).ok()).ok_or(failure)
    }

    /// Creates an anchor that is bound to this address, at any port.
    fn bound(owner: &Arc<Home>, verbs: NonNull<ibv_context>, mut addr: SocketAddr) -> Result<Self, Errno> {
        addr.set_port(0);
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open and `raw` is a place for the result; no context is given.
        errno::of_call(|| unsafe {
            ffi::rdma_create_id(owner.0.as_ptr(), &raw mut raw, ptr::null_mut(), rdma_port_space::RDMA_PS_IB)
        })?;
        let anchor = Anchor { raw: NonNull::new(raw).ok_or(Errno::EIO)?, home: Arc::clone(owner) };
        let mut addr = CAddr::new(addr);
        // SAFETY: the id is alive, its channel open, and the address is read during the call.
        errno::of_call(|| unsafe { ffi::rdma_bind_addr(raw, addr.as_mut_ptr()) })?;
        // SAFETY: the id is alive, and rdma_bind_addr has returned.
        let bound_to = unsafe { (*raw).verbs };
        if bound_to == verbs.as_ptr() { Ok(anchor) } else { Err(Errno::EADDRNOTAVAIL) }
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if self.process().is_other() {
            return;
        }
        // SAFETY: made by rdma_create_id and destroyed only here; its channel is open. It does not wait: no event of
        // it was ever read. On failure (no known case) it is leaked, and the context stays open.
        let _ = unsafe { ffi::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// The IP addresses among the GIDs of a port, as on RoCE. A link-local address cannot be bound without its interface.
fn gids(verbs: NonNull<ibv_context>, port: u8) -> impl Iterator<Item = SocketAddr> {
    (0..GIDS_MAX).map_while(move |index| gid(verbs, port, index)).filter_map(|gid| {
        let ip = IpAddr::from(gid).to_canonical();
        let usable = match ip {
            IpAddr::V4(v4) => !v4.is_unspecified(),
            IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_unicast_link_local(),
        };
        usable.then_some(SocketAddr::new(ip, 0))
    })
}

/// The number of GIDs that are read. No known port uses more.
const GIDS_MAX: c_int = 128;

/// One entry of a port's GID table (ibv_query_gid(3)); `None` beyond its end.
fn gid(verbs: NonNull<ibv_context>, port: u8, index: c_int) -> Option<[u8; 16]> {
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the context is open, because an id has it, and the result has a place.
    errno::of_call(|| unsafe { ffi::ibv_query_gid(verbs.as_ptr(), port, index, &raw mut gid) }).ok()?;
    // SAFETY: both are 16 bytes, and every bit pattern is a value of the array.
    Some(unsafe { core::mem::transmute::<ibv_gid, [u8; 16]>(gid) })
}
