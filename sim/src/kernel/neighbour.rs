//! Link addresses that change: the peers' (`cma_netevent_callback`) and the own (`cma_netdev_callback`).

use crate::fabric::world::World;
use crate::index::HostNo;
use crate::kernel::channel::Kind;
use crate::kernel::ib_cm::TIMED_OUT;
use crate::kernel::id::Id;

impl World {
    /// The link address of a host is another: who watches its neighbours hears of it.
    pub(crate) fn neighbour_changed(&mut self, host: HostNo, concerns: impl Fn(&Id) -> bool) {
        let Some(changed) = self.hosts.get(host.0) else { return };
        let addresses = &changed.rdma;
        let watches = |id: &Id| id.watched && !id.removed && id.dst.is_some_and(|dst| addresses.contains(&dst.ip()));
        let watchers = self.ids.keys_of(|_, id| watches(id) && concerns(id));
        for no in watchers {
            self.report_plain(no, Kind::Unreachable, TIMED_OUT);
        }
    }

    /// The host's bond has failed over.
    pub(crate) fn fail_over(&mut self, host: HostNo) {
        let own = self.ids.keys_of(|_, id| id.host == host && id.device && !id.removed);
        for no in own {
            self.report_plain(no, Kind::AddrChange, 0);
        }
        self.neighbour_changed(host, |id| id.host != host);
    }
}
