//! Fault injection: makes the next calls about memory of a host fail.

use cmid_proto::Errno;

use crate::data::fault::ReregFault;
use crate::fabric::host::Host;
use crate::kernel::host::HostState;

impl Host {
    /// The next `ibv_reg_mr` on this host that has no such fault before it fails in the provider, with that errno.
    pub fn fail_next_registration(&self, errno: Errno) {
        self.with_state(|host| host.faults.register.push_back(errno));
    }

    /// The next `ibv_dereg_mr` on this host that has no such fault before it fails with that errno and changes nothing.
    pub fn fail_next_deregistration(&self, errno: Errno) {
        self.with_state(|host| host.faults.deregister.push_back(errno));
    }

    /// The next `ibv_rereg_mr` on this host that gets to the stage of the fault, and has no fault before it, fails
    /// there.
    pub fn fail_next_reregistration(&self, fault: ReregFault) {
        self.with_state(|host| host.faults.reregister.push_back(fault));
    }

    fn with_state(&self, action: impl FnOnce(&mut HostState)) {
        self.fabric.with(|world| world.hosts.get_mut(self.no.0).map(action));
    }
}
