//! Changes of link addresses: of peers (`cma_netevent_callback`) and local ones (`cma_netdev_callback`).

use cmid_proto::CmEvent;

use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::ib_cm::TIMED_OUT;
use crate::kernel::id::Id;

impl World {
    pub(crate) fn link_addr(&self, host: HostNo) -> u64 {
        self.hosts.get(host.0).map_or(0, |host| host.link_addr)
    }

    /// Gives the host a link address that it never had.
    pub(crate) fn change_link_addr(&mut self, host: HostNo) {
        if let Some(changed) = self.hosts.get_mut(host.0) {
            changed.link_addr += 2;
        }
        self.neighbour_changed(host, |_| true);
    }

    /// Reports the host's link address to ids that watch it as a neighbour and know another one.
    fn neighbour_changed(&mut self, host: HostNo, concerns: impl Fn(&Id) -> bool) {
        let Some(changed) = self.hosts.get(host.0) else { return };
        let is_new = |id: &Id| id.neighbour_link != changed.link_addr && !id.removed && concerns(id);
        let is_of = |id: &Id| id.dst.is_some_and(|dst| changed.rdma.contains(&dst.ip()));
        let watchers = self.in_turn(|id| id.watched.filter(|_| is_new(id) && is_of(id)));
        for no in watchers {
            self.report_plain(no, CmEvent::Unreachable, TIMED_OUT);
        }
    }

    /// Gives the host the link address of the other interface of its bond.
    pub(crate) fn fail_over(&mut self, host: HostNo) {
        let Some(changed) = self.hosts.get_mut(host.0) else { return };
        changed.link_addr ^= 1;
        let now = changed.link_addr;
        let knows_another = |id: &Id| id.own_link.is_some_and(|own| own != now);
        let own = self.in_turn(|id| id.device.filter(|_| id.host == host && knows_another(id) && !id.removed));
        for no in own {
            self.report_plain(no, CmEvent::AddrChange, 0);
        }
        self.neighbour_changed(host, |id| id.host != host);
    }
}
