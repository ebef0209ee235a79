//! Injectable faults of creations, memory calls and posts.

use std::collections::VecDeque;

use cmid_proto::Errno;
#[cfg(doc)]
use cmid_proto::datapath::PostReason;
use cmid_proto::memory::Code;

use crate::fabric::host::Host;
use crate::fabric::world::World;
use crate::index::HostNo;

/// What a program creates and a host may have no more of, for [`Host::fail_next_creation`](crate::Host::fail_next_creation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// An event channel.
    Channel,
    /// An id; not that of a connection request, which the kernel makes.
    Id,
    /// A protection domain.
    Pd,
    /// A registration of memory.
    Mr,
    /// A memory window.
    Mw,
    /// A completion channel.
    CompChannel,
    /// A completion queue.
    Cq,
    /// A shared receive queue.
    Srq,
    /// A queue pair.
    Qp,
    /// An address handle.
    Ah,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 10] = {
        use Resource::{Ah, Channel, CompChannel, Cq, Id, Mr, Mw, Pd, Qp, Srq};
        [Channel, Id, Pd, Mr, Mw, CompChannel, Cq, Srq, Qp, Ah]
    };
}

/// The registration that a driver leaves when it fails in the middle of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// The old registration: it was not changed, or it was restored.
    Old,
    /// The new registration, but the kernel still records the old PD.
    New,
    /// None: the hardware dropped the old registration and did not get the new one (mlx4, hns, irdma).
    Neither,
    /// None, and the kernel records the new PD for the MR without counting it. Deregistration then decrements the
    /// count of the new PD instead of the old one (irdma).
    NeitherAndPdSwitched,
}

/// A failure of `ibv_rereg_mr`. It applies to the first call that reaches its stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReregFault {
    /// The returned value. With [`Code::DontForkNew`] the new memory cannot be kept from forked children, with
    /// [`Code::DoForkOld`] the change is made and the old memory cannot be given back to them: of a change of the translation.
    /// With another one the driver fails, which requires a provider that can re-register
    /// ([`Config::rereg`](crate::Config::rereg)) and arguments that pass the kernel's checks;
    /// [`Code::CmdAndDoForkNew`] also a change of the translation.
    pub code: Code,
    /// The errno.
    pub errno: Errno,
    /// The registration at the device after a failure of the driver.
    pub left: Left,
}

/// The faults that are not used yet.
#[derive(Debug, Default)]
pub(crate) struct MemoryFaults {
    pub(crate) creations: Vec<(Resource, Errno)>,
    pub(crate) deregister: VecDeque<Errno>,
    pub(crate) reregister: VecDeque<ReregFault>,
    pub(crate) doorbell: VecDeque<Errno>,
    /// Calls of devices, each with the number of those before it that do not fail.
    pub(crate) calls: VecDeque<(u32, Errno)>,
}

impl MemoryFaults {
    /// Takes the next fault of the creation of a resource.
    pub(crate) fn take_creation(&mut self, what: Resource) -> Result<(), Errno> {
        let at = self.creations.iter().position(|(resource, _)| *resource == what);
        at.map_or(Ok(()), |at| Err(self.creations.remove(at).1))
    }

    /// Takes the fault of a call, if it is its turn.
    pub(crate) fn take_call(&mut self) -> Result<(), Errno> {
        let Some((after, errno)) = self.calls.front_mut() else { return Ok(()) };
        let errno = *errno;
        let Some(left) = after.checked_sub(1) else {
            self.calls.pop_front();
            return Err(errno);
        };
        *after = left;
        Ok(())
    }

    /// Takes the next fault of a re-registration, if it is such a one.
    pub(crate) fn take_reregister(&mut self, is_it: impl FnOnce(ReregFault) -> bool) -> Option<ReregFault> {
        self.reregister.front().copied().filter(|&fault| is_it(fault))?;
        self.reregister.pop_front()
    }
}

impl Host {
    /// Makes a call of a [`Device`](cmid_proto::Device) on this host fail with this errno and do nothing, after so many that do
    /// what they are to: a request's, a read of events, the release or the adoption of an id. Faults queue: each counts from the
    /// one before.
    pub fn fail_call(&self, after: u32, errno: Errno) {
        self.with_state(|host| host.faults.calls.push_back((after, errno)));
    }

    /// Returns the number of faults of [`fail_call`](Host::fail_call) that are still to come.
    #[must_use]
    pub fn calls_to_fail(&self) -> usize {
        self.with_state(|host| host.faults.calls.len()).unwrap_or(0)
    }

    /// Makes the next creation of such a resource on this host fail with this errno, in the kernel or the provider: what
    /// the library refuses before does not count. Faults queue: each creation uses one of its kind.
    pub fn fail_next_creation(&self, of: Resource, errno: Errno) {
        self.with_state(|host| host.faults.creations.push((of, errno)));
    }

    /// Makes the next `ibv_dereg_mr` on this host fail with this errno and change nothing. Faults queue: each call
    /// uses one.
    pub fn fail_next_deregistration(&self, errno: Errno) {
        self.with_state(|host| host.faults.deregister.push_back(errno));
    }

    /// Makes the next `ibv_rereg_mr` on this host that reaches the stage of the fault fail there. Faults queue: each
    /// call uses one.
    pub fn fail_next_reregistration(&self, fault: ReregFault) {
        self.with_state(|host| host.faults.reregister.push_back(fault));
    }

    /// Makes the next post on this host fail with this errno after its work requests are in their queue, as librxe and
    /// libsiw do if the kernel refuses the doorbell: of a send, a batch, a receive, a bind or an invalidate. They stay in
    /// flight, and the device executes them with the next doorbell of that queue, or flushes them in the error state. A send
    /// queue on iWARP has no next doorbell: later posts fail ([`PostReason::Stuck`]). No poll returns their completions.
    /// Faults queue: each post uses one.
    pub fn fail_next_doorbell(&self, errno: Errno) {
        self.with_state(|host| host.faults.doorbell.push_back(errno));
    }
}

impl World {
    /// Whether a host has one more of such a resource.
    pub(crate) fn grant(&mut self, host: HostNo, what: Resource) -> Result<(), Errno> {
        self.hosts.get_mut(host.0).map_or(Ok(()), |host| host.faults.take_creation(what))
    }
}
