//! The program on the simulator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use cmid_proto::datapath::{Attaching, Caps, DataPath, ProtectionDomain};
use cmid_proto::memory::Access;
use cmid_proto::{Call, ChannelKey, CmEvent, ConnParam, Device, IdKey, PortSpace};
use cmid_sim::{Config, Cq, Fabric, Qp, SimDevice};

use super::{BLOCKS, End, Ground, LEN, READ, adversary};
use crate::input::Input;

/// The addresses of the ends, and the port of the listener.
const ADDRS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];
const PORT: u16 = 7;

/// Runs the input. Its first byte is the device.
pub fn run(data: &[u8]) {
    let (device, data) = data.split_at(data.len().min(1));
    let mut input = Input::new(device);
    let bits = input.below(8);
    let config = Config { copy_at_poll: bits & 1 != 0, completions_outlive_qp: bits & 2 != 0, ..Config::default() };
    let (ground, ends) = connected(config, if bits & 4 == 0 { 3 } else { 16 });
    adversary(data, ground, ends);
}

/// A process: its device, and the id of its end.
struct Process {
    device: SimDevice,
    id: IdKey,
}

struct Simulated {
    fabric: Fabric,
    processes: [Process; 2],
}

impl Ground for Simulated {
    fn wait(&mut self) {
        self.fabric.advance_by(Duration::from_millis(1));
    }

    fn detach(&mut self, end: usize) {
        let Process { device, id } = &mut self.processes[end];
        device.destroy_qp(*id).expect("the id has a QP");
    }
}

fn key(slot: u32) -> IdKey {
    IdKey::from_parts(0, slot, 1).expect("a generation")
}

impl Process {
    fn new(fabric: &Fabric, addr: IpAddr) -> Self {
        let mut process = Process { device: fabric.host(&[addr]).device(), id: key(0) };
        let (id, channel) = (process.id, process.channel());
        process.call(&Call::OpenChannel { channel });
        process.call(&Call::CreateId { id, channel, port_space: PortSpace::Tcp });
        process
    }

    fn channel(&self) -> ChannelKey {
        ChannelKey::from_parts(0, 1, 1).expect("a generation")
    }

    fn call(&mut self, call: &Call) {
        assert_eq!(self.device.call(call, &[]), Ok(()), "{call:?}");
    }

    /// Waits for an event. The id of a CONNECT_REQUEST becomes that of the end.
    fn expect(&mut self, kind: CmEvent) {
        let (fabric, channel) = (self.device.fabric().clone(), self.channel());
        let new = key(self.id.slot() as u32 + 1);
        let event = loop {
            match self.device.fetch(channel, new).expect("the channel is open") {
                Some(event) => break event.kind,
                None => fabric.advance_to(fabric.next_due().expect("an event")),
            }
        };
        assert_eq!(event, kind);
        if kind == CmEvent::ConnectRequest {
            self.id = new;
        }
    }

    fn end(&mut self, depth: u32) -> End<Qp, Cq> {
        let pd = self.device.alloc_pd(self.id).expect("a PD");
        let cq = self.device.create_cq(self.id, 2 * depth).expect("a CQ");
        let caps = Caps { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 2, max_recv_sge: 2, max_inline: 0 };
        let qp = self.device.create_qp(Attaching::bare(self.id), &pd, &cq, &cq, caps).expect("a QP");
        let pool = pd.pool(vec![0; BLOCKS * LEN], LEN, Access::empty()).expect("a pool");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.register(vec![READ; 2 * LEN], rights).expect("memory");
        End { qp, cq, pool, memory }
    }
}

/// Two connected ends, whose queues have this depth.
fn connected(config: Config, depth: u32) -> (Simulated, [End<Qp, Cq>; 2]) {
    let fabric = Fabric::new(config);
    let [mut client, mut server] = ADDRS.map(|addr| Process::new(&fabric, addr));
    let addr = SocketAddr::new(ADDRS[1], PORT);
    let param = |qp_num| ConnParam {
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 5,
        rnr_retry_count: 7,
        qp_num,
        ..ConnParam::default()
    };
    server.call(&Call::Bind { id: server.id, addr });
    server.call(&Call::Listen { id: server.id, backlog: 1 });
    let id = client.id;
    client.call(&Call::ResolveAddr { id, src: Some(SocketAddr::new(ADDRS[0], 0)), dst: addr, timeout_ms: 2000 });
    client.expect(CmEvent::AddrResolved);
    client.call(&Call::ResolveRoute { id, timeout_ms: 2000 });
    client.expect(CmEvent::RouteResolved);
    let here = client.end(depth);
    client.call(&Call::Connect { id, param: param(100) });
    server.expect(CmEvent::ConnectRequest);
    let there = server.end(depth);
    server.call(&Call::Accept { id: server.id, param: param(101) });
    client.expect(CmEvent::Established);
    server.expect(CmEvent::Established);
    (Simulated { fabric, processes: [client, server] }, [here, there])
}
