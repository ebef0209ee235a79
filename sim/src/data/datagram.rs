//! Delivery of datagrams, to one QP or to a group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cmid_proto::Service;
use cmid_proto::datapath::{GRH_LEN, WcOpcode, WcStatus};

use crate::data::packet::Datagram;
use crate::data::qp::PairState;
use crate::data::queues::Pair;
use crate::fabric::config::Flavour;
use crate::fabric::rules::Kind;
use crate::fabric::world::World;
use crate::index::QpNo;
use crate::kernel::gid::ip_of;
use crate::kernel::multicast::MULTICAST_QP;
use crate::kernel::sidr::UDP_QKEY;

/// The offset of an IPv4 header in `union rdma_network_hdr`.
const IPV4_AT: usize = 20;

/// The IP protocol number of RoCEv2 packets.
const UDP: u8 = 17;

impl World {
    /// Delivers a datagram to its destination. A receiver that cannot take it drops it without an error.
    pub(crate) fn datagram_arrives(&mut self, datagram: &Datagram) {
        let target = ip_of(datagram.route.dgid);
        let from = datagram.from.host;
        let mut receivers: Vec<QpNo> = if target.is_multicast() && datagram.to_qp == MULTICAST_QP {
            let is_attached = |pair: &Pair| pair.groups.contains(&datagram.route.dgid);
            self.queues.pairs.keys_of(|_, pair| is_attached(pair))
        } else {
            let host = self.rdma_host_of(target);
            host.map(|host| QpNo { host, num: datagram.to_qp }).into_iter().collect()
        };
        receivers.retain(|qp| self.passes(Some(Kind::Datagram), from, qp.host));
        if receivers.is_empty() {
            self.counters.datagrams_dropped += 1;
        }
        for qp in receivers {
            if self.is_lost(Kind::Datagram, from, |_| Some(qp.host)) {
                self.counters.datagrams_lost += 1;
                self.log(from, qp.host, true, || "datagram".to_owned());
            } else if self.receive_datagram(qp, datagram).is_none() {
                self.counters.datagrams_dropped += 1;
                self.log(from, qp.host, true, || "datagram without a receive".to_owned());
            } else {
                self.log(from, qp.host, false, || "datagram".to_owned());
            }
        }
    }

    /// Puts a datagram into the next receive of a QP; `None` if that is not possible (`check_keys`, `check_resource`
    /// of rxe). A receive that is too short stays. If it is of an SRQ it ends, and on Linux 6.1 each one does, and its QP with it
    /// (`rxe_resp_check_length`, `send_data_in`).
    fn receive_datagram(&mut self, qp: QpNo, datagram: &Datagram) -> Option<()> {
        let len = GRH_LEN + datagram.bytes.len();
        let pair = self.queues.pairs.get(&qp)?;
        let listens = pair.service == Service::Datagram && matches!(pair.state, PairState::Rtr | PairState::Rts);
        let (pd, is_shared) = (pair.pd, pair.srq.is_some());
        if !listens || datagram.qkey != UDP_QKEY {
            return None;
        }
        let fits = self.next_receive(qp)?.len() >= len;
        let is_old = self.config.flavour == Flavour::Linux6_1;
        if !fits && !is_shared && !is_old {
            return None;
        }
        let receive = self.take_receive(qp)?;
        if !fits {
            let status = if is_old { WcStatus::LOC_QP_OP_ERR } else { WcStatus::REM_INV_REQ_ERR };
            self.finish_receive(qp, &receive, receive.ended(Err(status), WcOpcode::RECV, datagram.extra));
            if is_old {
                self.qp_to_error(qp);
            }
            return None;
        }
        let bytes = [&header_of(datagram)[..], &datagram.bytes].concat();
        let outcome = self.put(pd, &receive.ranges, &bytes).ok_or(WcStatus::LOC_PROT_ERR);
        let mut received = receive.ended(outcome, WcOpcode::RECV, datagram.extra);
        received.completion.src_qp = datagram.from.num;
        self.finish_receive(qp, &receive, received);
        Some(())
    }
}

/// Returns the header as in RoCEv2: that of the IP packet. An IPv4 header is in the second half.
fn header_of(datagram: &Datagram) -> [u8; GRH_LEN] {
    let mut header = [0; GRH_LEN];
    let route = &datagram.route;
    match (datagram.source, ip_of(route.dgid)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = &mut header[IPV4_AT..];
            ip[0] = 0x45;
            ip[1] = route.traffic_class;
            ip[8] = route.hop_limit;
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&from.octets());
            ip[16..20].copy_from_slice(&to.octets());
        }
        (from, to) => {
            let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label & 0x000f_ffff;
            header[..4].copy_from_slice(&first.to_be_bytes());
            header[6] = UDP;
            header[7] = route.hop_limit;
            header[8..24].copy_from_slice(&crate::kernel::gid::gid_of(from));
            header[24..40].copy_from_slice(&crate::kernel::gid::gid_of(to));
        }
    }
    header
}

/// Returns the receiver's and the sender's address from a header (`ibv_init_ah_from_wc`); `None` if it is invalid.
pub(crate) fn route_back(header: &[u8; GRH_LEN]) -> Option<(IpAddr, IpAddr)> {
    let bytes = |at: usize| <[u8; 16]>::try_from(header.get(at..at + 16)?).ok();
    if header[0] >> 4 == 6 {
        let (from, to) = (Ipv6Addr::from(bytes(8)?), Ipv6Addr::from(bytes(24)?));
        return Some((to.into(), from.into()));
    }
    if header[IPV4_AT] != 0x45 {
        return None;
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    Some((Ipv4Addr::new(e, f, g, h).into(), Ipv4Addr::new(a, b, c, d).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::packet::Extra;
    use crate::data::space::Bytes;
    use crate::index::HostNo;
    use crate::kernel::gid::{HOP_LIMIT, gid_of};
    use cmid_proto::datapath::GlobalRoute;

    #[test]
    fn a_header_tells_the_way_back() {
        for (from, to) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let route = GlobalRoute { dgid: gid_of(to), hop_limit: HOP_LIMIT, ..GlobalRoute::default() };
            let sender = QpNo { host: HostNo(0), num: 17 };
            let datagram = Datagram {
                from: sender,
                source: from,
                route,
                to_qp: 18,
                qkey: 0,
                bytes: Bytes::new(),
                extra: Extra::default(),
            };
            assert_eq!(route_back(&header_of(&datagram)), Some((to, from)));
        }
        assert_eq!(route_back(&[0; GRH_LEN]), None);
    }
}
