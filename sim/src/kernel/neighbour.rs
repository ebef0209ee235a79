//! Changes of link addresses: of peers (`cma_netevent_callback`) and local ones (`cma_netdev_callback`).

use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::channel::Kind;
use crate::kernel::ib_cm::TIMED_OUT;
use crate::kernel::id::Id;

impl World {
    /// Reports a change of the host's link address to ids that watch it as a neighbour.
    pub(crate) fn neighbour_changed(&mut self, host: HostNo, concerns: impl Fn(&Id) -> bool) {
        let Some(changed) = self.hosts.get(host.0) else { return };
        let addresses = &changed.rdma;
        let watches = |id: &Id| id.watched && !id.removed && id.dst.is_some_and(|dst| addresses.contains(&dst.ip()));
        let watchers = self.ids.keys_of(|_, id| watches(id) && concerns(id));
        for no in watchers {
            self.report_plain(no, Kind::Unreachable, TIMED_OUT);
        }
    }

    /// Reports a failover of the host's bond.
    pub(crate) fn fail_over(&mut self, host: HostNo) {
        let own = self.ids.keys_of(|_, id| id.host == host && id.device && !id.removed);
        for no in own {
            self.report_plain(no, Kind::AddrChange, 0);
        }
        self.neighbour_changed(host, |id| id.host != host);
    }
}
