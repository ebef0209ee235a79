//! The multicast groups of an id.
//!
//! librdmacm has a record of each membership. The kernel returns the record in its events; a leave finds it by
//! address. This list is kept in addition because librdmacm leaves two things to its caller: the kernel does not
//! destroy a QP that is attached to a group, and `rdma_destroy_id` does not free the records.

use core::net::SocketAddr;
use core::ptr;

use cmid_proto::datapath::AhAttr;
use cmid_proto::{Errno, GroupKey, Outcome};

use crate::errno;
use crate::ffi::{self, rdma_cm_join_mc_attr_ex, rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags};
use crate::kernel::{Group, QueuePair as _};
use crate::librdmacm::id::{Id, as_context};
use crate::sockaddr::CAddr;
use crate::tables::Destroy as _;

/// One membership of an id.
pub(crate) struct Membership {
    pub(crate) key: GroupKey,
    pub(crate) addr: SocketAddr,
    pub(crate) send_only: bool,
    /// The group that librdmacm attached the id's QP to when it read MULTICAST_JOIN.
    pub(crate) attached: Option<Group>,
}

impl Id {
    /// `rdma_join_multicast_ex`. The events of the membership contain the key.
    pub(crate) fn join(&mut self, key: GroupKey, addr: &SocketAddr, send_only: bool) -> Outcome {
        let addr = *addr;
        self.groups.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let mut c_addr = CAddr::new(addr);
        let flags = if send_only {
            rdma_cm_mc_join_flags::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
        } else {
            rdma_cm_mc_join_flags::RDMA_MC_JOIN_FLAG_FULLMEMBER
        };
        let given = rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_ADDRESS.0
            | rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS.0;
        let mut attr = rdma_cm_join_mc_attr_ex { comp_mask: given, join_flags: flags.0, addr: c_addr.as_mut_ptr() };
        // SAFETY: the id is alive and its channel open; attributes and address are read during the call. The context
        // is only kept, never followed.
        errno::of_call(|| unsafe {
            ffi::rdma_join_multicast_ex(self.as_ptr(), &raw mut attr, as_context(key.to_bits()))
        })?;
        self.groups.push(Membership { key, addr, send_only, attached: None });
        Ok(())
    }

    /// `rdma_leave_multicast`. If the id has several memberships with this address, it leaves the latest, as librdmacm
    /// does.
    ///
    /// If the device is removed meanwhile, this may [end](Id::has_ended) the id.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the id is in no such group, `ENXIO` if its device is gone, `EACCES` for a thread with other credentials.
    pub(crate) fn leave(&mut self, addr: SocketAddr) -> Outcome {
        // librdmacm frees its record of the group even if the kernel refuses the leave. An unread event would then
        // refer to freed memory.
        self.takes_commands()?;
        match self.leave_now(addr) {
            Ok(()) => Ok(()),
            // There was no record, so none was freed.
            Err(Errno::EADDRNOTAVAIL) => Err(Errno::EADDRNOTAVAIL),
            // The record is freed. If the device was removed between the two calls, the destroy removes the id's unread events
            // before any is read: only this thread reads them. If the credentials have changed, no thread can read them.
            Err(errno) => {
                self.destroy()?;
                Err(errno)
            }
        }
    }

    /// Leaves all groups, so that the destroy of the id leaves no record behind. It follows at once.
    ///
    /// # Errors
    /// That of the destroy, which the kernel would refuse; the memberships stay.
    pub(crate) fn leave_all(&mut self) -> Outcome {
        if self.groups.is_empty() {
            return Ok(());
        }
        // An id whose device is gone can be destroyed.
        self.takes_commands().or_else(|errno| if errno == Errno::ENXIO { Ok(()) } else { Err(errno) })?;
        while let Some(last) = self.groups.last() {
            // If the kernel refuses, the device is gone. The id's unread events are discarded with the id, before any
            // is read.
            let _ = self.leave_now(last.addr);
        }
        Ok(())
    }

    fn leave_now(&mut self, addr: SocketAddr) -> Outcome {
        if let Some(at) = self.groups.iter().rposition(|group| group.addr == addr) {
            self.groups.remove(at);
        }
        let mut addr = CAddr::new(addr);
        // SAFETY: the id is alive, its channel open, and it holds its QP, if any. The address is read during the call.
        // The call does not wait for acks, because every event of the group was acked when it was read.
        errno::of_call(|| unsafe { ffi::rdma_leave_multicast(self.as_ptr(), addr.as_mut_ptr()) })
    }

    /// Records that MULTICAST_JOIN was read: librdmacm has then attached the QP.
    pub(crate) fn joined(&mut self, key: GroupKey, path: &AhAttr) {
        let has_qp = self.qp.is_some();
        if let Some(group) = self.groups.iter_mut().find(|group| group.key == key) {
            if has_qp && !group.send_only {
                group.attached = Some(Group::at(path));
            }
        }
    }

    /// Detaches the QP from its groups. The memberships stay.
    pub(crate) fn detach_groups(&mut self) {
        let Some(qp) = &self.qp else { return };
        for group in self.groups.iter_mut().filter_map(|membership| membership.attached.take()) {
            qp.detach_group(group);
        }
    }

    /// Whether the kernel takes commands for the id from this thread.
    ///
    /// # Errors
    /// `ENXIO` if it has closed the id, because its device is gone: it then refuses every command but a destroy. `EACCES` for a
    /// thread with other credentials than those that opened the channel (hazard P63): it refuses each.
    fn takes_commands(&self) -> Outcome {
        // The kernel looks up the id before it checks the level and the option, neither of which exists. SAFETY: the id
        // is alive, its channel open, and the option has no bytes.
        let asked = errno::of_call(|| unsafe { ffi::rdma_set_option(self.as_ptr(), NO_LEVEL, 0, ptr::null_mut(), 0) });
        asked.or_else(|errno| if errno == Errno::ENOSYS { Ok(()) } else { Err(errno) })
    }
}

/// A level of options that does not exist (rdma_set_option(3) knows 0 and 1).
const NO_LEVEL: i32 = i32::MAX;
