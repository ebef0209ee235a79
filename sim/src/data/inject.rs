//! Fault injection into creations, memory calls and posts of a host.

use cmid_proto::Errno;
#[cfg(doc)]
use cmid_proto::datapath::PostReason;

use crate::data::fault::{ReregFault, Resource};
use crate::fabric::host::Host;
use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::host::HostState;

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
        self.fabric.with(|world| world.hosts.get(self.no.0).map_or(0, |host| host.faults.calls.len()))
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

    fn with_state(&self, action: impl FnOnce(&mut HostState)) {
        self.fabric.with(|world| world.hosts.get_mut(self.no.0).map(action));
    }
}

impl World {
    /// Whether a host has one more of such a resource.
    pub(crate) fn grant(&mut self, host: HostNo, what: Resource) -> Result<(), Errno> {
        self.hosts.get_mut(host.0).map_or(Ok(()), |host| host.faults.take_creation(what))
    }
}
