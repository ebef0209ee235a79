//! `rdma_join_multicast`, `rdma_leave_multicast`, and the effects of reading their events. A join on RoCE needs no
//! answer: the host announces its membership to the network (IGMP) and continues (`cma_iboe_join_multicast`).

use std::net::{IpAddr, SocketAddr};

use cmid_proto::{CmEvent, Datagram, Errno, GroupKey};

use crate::fabric::timers::TimerKey;
use crate::fabric::world::{LOCAL_WORK, World};
use crate::index::{HostNo, IdNo};
use crate::kernel::channel::Unread;
use crate::kernel::due::Due;
use crate::kernel::gid::{gid_of, path};
use crate::kernel::id::CmState;
use crate::kernel::sidr::UDP_QKEY;

/// One membership, from the join to the leave.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    pub(super) addr: SocketAddr,
    pub(super) send_only: bool,
    /// The timer of a pending join.
    pub(super) pending: Option<TimerKey>,
    /// Set when the event is read: only then does the library know the group and detach the QP on leave.
    pub(super) read: bool,
}

/// The kernel's internal `ENOTSUPP`: no errno of user space, but the kernel returns it.
const ENOTSUPP: Errno = Errno::ENOTSUPP;

/// `ENOSYS`: the transport has no multicast (`rdma_join_multicast`).
const ENOSYS: Errno = Errno(38);

/// `-ENETRESET`: the status of a lost group (`cma_ib_mc_handler`).
const LOST: i32 = -102;

/// The QP number of all members (`IB_MULTICAST_QPN`).
pub(crate) const MULTICAST_QP: u32 = 0x00ff_ffff;

impl World {
    /// `rdma_join_multicast_ex`. The same address may be joined again: each join is a separate membership.
    pub(crate) fn join(&mut self, no: IdNo, key: GroupKey, addr: SocketAddr, send_only: bool) -> Result<(), Errno> {
        let iwarp = self.is_on_iwarp(no)?;
        let id = self.id(no)?;
        let bound = matches!(id.state, CmState::AddrBound | CmState::AddrResolved);
        if id.device.is_none() || !bound || !id.is_datagram() {
            return Err(Errno::EINVAL);
        }
        if iwarp {
            return Err(ENOSYS);
        }
        if addr.ip().is_unspecified() {
            return Err(Errno::EINVAL);
        }
        // The same check as for a route.
        if id.interface.is_none() {
            return Err(Errno::ENODEV);
        }
        if addr.is_ipv6() {
            return Err(ENOTSUPP);
        }
        let timer = self.timers.arm(self.now.after(LOCAL_WORK), Due::Joined { id: no, group: key });
        self.id(no)?.groups.push(Membership { key, addr, send_only, pending: Some(timer), read: false });
        Ok(())
    }

    /// Completes a join (`cma_iboe_join_work_handler`).
    pub(crate) fn joined(&mut self, no: IdNo, key: GroupKey) {
        let Some(id) = self.ids.get_mut(&no) else { return };
        let (host, src) = (id.host, id.src);
        let Some(membership) = id.groups.iter_mut().find(|group| group.key == key) else { return };
        membership.pending = None;
        let group = membership.addr.ip();
        let refused = self.hosts.get_mut(host.0).and_then(|host| host.refused_join.take());
        let named = |own: &IpAddr| self.hosts.get(host.0).is_some_and(|host| host.rdma.contains(&own.to_canonical()));
        let event = match (refused, src.map(|src| src.ip()).filter(named)) {
            (Some(status), _) => Unread { group: Some(key), ..Unread::new(no, CmEvent::MulticastError, status) },
            // The source may be the loopback address, which is no GID of the device (`cma_make_mc_event`).
            (None, None) => Unread { group: Some(key), ..Unread::new(no, CmEvent::MulticastError, 0) },
            (None, Some(own)) => {
                let path = path(self.gid_index(host, own), group);
                let datagram = Datagram { qp_num: MULTICAST_QP, qkey: UDP_QKEY, path };
                Unread { datagram: Some(datagram), group: Some(key), ..Unread::new(no, CmEvent::MulticastJoin, 0) }
            }
        };
        self.report(event);
    }

    /// Attaches the QP when MULTICAST_JOIN is read (`ucma_process_join`).
    pub(crate) fn attach_on_read(&mut self, no: IdNo, key: GroupKey) -> Result<(), Errno> {
        let Some(id) = self.ids.get_mut(&no) else { return Ok(()) };
        let Some(membership) = id.groups.iter_mut().find(|group| group.key == key) else { return Ok(()) };
        membership.read = true;
        let Some(qp) = id.qp.filter(|_| !membership.send_only) else { return Ok(()) };
        let group = membership.addr.ip();
        if id.removed {
            return Err(Errno::EIO);
        }
        // `ib_attach_mcast` requires a multicast address; `rdma_join_multicast` does not check it.
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        self.queues.attach(qp, gid_of(group))
    }

    /// `rdma_leave_multicast`. The library selects the membership by its address, the latest first; here the key
    /// selects it. The QP is detached from the group even if other memberships of it remain, because it is attached
    /// only once (`ib_uverbs_attach_mcast`).
    pub(crate) fn leave(&mut self, no: IdNo, key: GroupKey, addr: SocketAddr) -> Result<(), Errno> {
        let id = self.id(no)?;
        let known = |group: &Membership| group.key == key && group.addr == addr;
        let at = id.groups.iter().position(known).ok_or(Errno::EADDRNOTAVAIL)?;
        let membership = id.groups.remove(at);
        let (file, qp, removed) = (id.file, id.qp, id.removed);
        if let Some(qp) = qp.filter(|_| membership.read && !membership.send_only) {
            self.queues.detach(qp, gid_of(membership.addr.ip()));
        }
        if let Some(timer) = membership.pending {
            self.timers.cancel(timer);
        }
        // The record is removed even if the kernel returns an error.
        if removed {
            return Err(Errno::ENXIO);
        }
        if let Some(file) = self.files.get_mut(&file) {
            file.drop_group(no, key);
        }
        Ok(())
    }

    /// Ends the memberships with the kernel's id (`destroy_mc`). Its QP stays attached, and the library keeps its
    /// records.
    pub(crate) fn cancel_joins(&mut self, no: IdNo) {
        let Some(id) = self.ids.get_mut(&no) else { return };
        for timer in id.groups.iter_mut().filter_map(|membership| membership.pending.take()) {
            self.timers.cancel(timer);
        }
    }

    /// Reports a lost group to the ids of a host, as with an InfiniBand subnet manager.
    pub(crate) fn lose_group(&mut self, host: HostNo, group: IpAddr) {
        let here = self.ids.keys_of(|_, id| id.host == host && !id.removed);
        let lost: Vec<(IdNo, GroupKey)> = here
            .into_iter()
            .filter_map(|no| Some((no, self.ids.get(&no)?)))
            .flat_map(|(no, id)| id.groups.iter().map(move |membership| (no, membership)))
            .filter(|(_, membership)| membership.pending.is_none() && membership.addr.ip() == group)
            .map(|(no, membership)| (no, membership.key))
            .collect();
        for (no, key) in lost {
            self.report(Unread { group: Some(key), ..Unread::new(no, CmEvent::MulticastError, LOST) });
        }
    }
}
