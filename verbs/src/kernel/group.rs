//! The multicast groups of an id: its memberships, joins and leaves, and their events.

use core::net::{IpAddr, SocketAddr};

use cmid_proto::{ChannelKey, CmEvent, Errno, GroupKey, IdKey, Outcome};

use crate::kernel::abi;
use crate::kernel::answer::{Answer, storage};
use crate::kernel::calls::Id;
use crate::kernel::device::KernelCm;
use crate::kernel::events::Reported;
use crate::kernel::qp::Group;

/// One multicast group that an id is in.
pub(crate) struct Membership {
    pub(super) key: GroupKey,
    pub(super) addr: SocketAddr,
    /// The kernel's number of the membership.
    pub(super) handle: u32,
    pub(super) send_only: bool,
    /// Whether its MULTICAST_JOIN or MULTICAST_ERROR is not read yet.
    pub(super) is_pending: bool,
    /// The group that the QP is attached to.
    pub(super) attached: Option<Group>,
}

impl Membership {
    /// Whether a group has the GID of its address: the low 28 bits of an IPv4 address, or the low 80 bits of an IPv6
    /// address. The rest depends on the link (`cma_set_mgid`, `cma_iboe_set_mgid`).
    pub(super) fn is_of(&self, group: Group) -> bool {
        let gid = group.gid;
        match self.addr.ip() {
            IpAddr::V4(ip) => {
                let [first, rest @ ..] = ip.octets();
                gid[12] & 0x0f == first & 0x0f && gid[13..] == rest
            }
            IpAddr::V6(ip) => gid[6..] == ip.octets()[6..],
        }
    }
}

/// The uid of the memberships of an id. No key has generation 0, so it differs from the uids of ids.
fn uid_of_memberships(id: IdKey) -> u64 {
    id.to_bits() - u64::from(id.generation())
}

impl Id {
    /// Joins a group. The kernel's events name the uid and the number of the membership.
    pub(super) fn join(&mut self, key: GroupKey, at: &SocketAddr, send_only: bool) -> Outcome {
        self.groups.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let ((addr, addr_size), uid, id) = (storage(at), self.uid.map_or(0, uid_of_memberships), self.handle);
        let join_flags = u16::from(send_only);
        let handle = self.fd.number(abi::JoinMcast { response: 0, uid, id, addr_size, join_flags, addr })?;
        self.groups.push(Membership { key, addr: *at, handle, send_only, is_pending: true, attached: None });
        Ok(())
    }

    /// # Errors
    /// `EADDRNOTAVAIL` if the id has no membership with this key and address; `ENXIO` once the device is gone, and the
    /// membership stays.
    pub(super) fn leave(&mut self, key: GroupKey, addr: &SocketAddr) -> Outcome {
        let at = self
            .groups
            .iter()
            .position(|group| group.key == key && group.addr == *addr)
            .ok_or(Errno(libc::EADDRNOTAVAIL))?;
        if let (Some(qp), Some(group)) = (&self.qp, self.groups[at].attached.take()) {
            qp.detach_group(group);
        }
        let id = self.groups[at].handle;
        self.fd.number(abi::LeaveMcast { response: 0, id, reserved: 0 })?;
        self.groups.remove(at);
        Ok(())
    }

    /// The index of the membership with this number.
    fn numbered(&self, handle: u32) -> Option<usize> {
        self.groups.iter().position(|group| group.handle == handle)
    }

    /// The index of the membership of an event that names the id only. Joins end in the order in which they began: a
    /// MULTICAST_JOIN is of the first one at its address that is pending, a MULTICAST_ERROR of the first one that is
    /// pending, or of the only membership.
    fn member(&self, event: &Answer<'_>) -> Option<usize> {
        let pending =
            |of: &dyn Fn(&Membership) -> bool| self.groups.iter().position(|group| group.is_pending && of(group));
        if event.kind() == CmEvent::MulticastJoin {
            let group = Group::at(&event.datagram().path);
            return pending(&|membership| membership.is_of(group));
        }
        pending(&|_| true).or((self.groups.len() == 1).then_some(0))
    }

    /// Attaches the QP, unless the membership only sends.
    fn attach_to(&mut self, at: usize, group: Group) -> Outcome {
        let membership = &mut self.groups[at];
        if let Some(qp) = self.qp.as_ref().filter(|_| !membership.send_only) {
            qp.attach_group(group)?;
            membership.attached = Some(group);
        }
        Ok(())
    }
}

impl KernelCm {
    /// Returns the MULTICAST_JOIN or MULTICAST_ERROR that was read last; attaches the QP for the former. `None` if it is
    /// of no membership.
    #[cold]
    pub(super) fn of_membership(&mut self, on: ChannelKey) -> Option<Reported> {
        let (key, at) = self.membership(on)?;
        let (id, event) = (self.tables.id_mut(key).ok()?, Answer(&self.answer));
        id.groups[at].is_pending = false;
        let (kind, status) = if event.kind() == CmEvent::MulticastJoin {
            // For each status of the event.
            match id.attach_to(at, Group::at(&event.datagram().path)) {
                Ok(()) => (CmEvent::MulticastJoin, 0),
                Err(errno) => (CmEvent::MulticastError, -errno.0),
            }
        } else {
            (event.kind(), event.status())
        };
        Some(Reported { id: key, listener: None, kind, status, group: Some(id.groups[at].key) })
    }

    /// Returns the id of a group event, and the index of its membership. The event names the uid and the number of the
    /// membership; or those of the id, in kernels with the fix that is proposed for `ucma_create_uevent`.
    fn membership(&self, on: ChannelKey) -> Option<(IdKey, usize)> {
        let event = Answer(&self.answer);
        let (uid, handle) = (event.uid(), event.handle());
        if IdKey::from_bits(uid).is_some() {
            let key = self.known(on, uid, handle)?;
            return Some((key, self.tables.id(key).ok()?.member(&event)?));
        }
        let here = IdKey::from_bits(uid | 1).and_then(|first| self.tables.ids.at_slot(first));
        let adopted = self.adopted.values().copied();
        here.into_iter().chain(adopted).find_map(|key| Some((key, self.tables.id_on(on, key)?.numbered(handle)?)))
    }
}
