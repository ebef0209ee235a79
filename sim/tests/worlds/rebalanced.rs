//! A server on the bare calls that moves its listener between two channels, as if each were that of a thread.

use std::time::Duration;

use cmid_proto::{Call, ChannelKey, CmEvent, ConnParam, Device, IdKey, PortSpace, Time};
use cmid_sim::{Node, Program, SimDevice, Turn};

use crate::server::{PARAM, PORT};

/// The longest time that the listener stays on a channel.
const STAY: Duration = Duration::from_millis(5);

pub(crate) struct Rebalanced {
    device: SimDevice,
    node: Node,
    channels: [ChannelKey; 2],
    listener: IdKey,
    /// The channel that the listener is on.
    at: usize,
    moves_at: Time,
    children: u32,
    /// The mistake: it does not read the channel before it moves the listener.
    leaves_requests: bool,
}

impl Rebalanced {
    pub(crate) fn new(node: &Node, leaves_requests: bool) -> Self {
        let mut device = node.device();
        let channels = [0, 1].map(|slot| ChannelKey::from_parts(0, slot, 1).unwrap());
        let [channel, _] = channels;
        let listener = IdKey::from_parts(0, 0, 1).unwrap();
        for channel in channels {
            device.call(&Call::OpenChannel { channel }, &[]).unwrap();
        }
        device.call(&Call::CreateId { id: listener, channel, port_space: PortSpace::Tcp }, &[]).unwrap();
        device.call(&Call::Bind { id: listener, addr: node.addr(PORT) }, &[]).unwrap();
        device.call(&Call::Listen { id: listener, backlog: 16 }, &[]).unwrap();
        let moves_at = node.now().after(node.random_time(STAY));
        Rebalanced { device, node: node.clone(), channels, listener, at: 0, moves_at, children: 0, leaves_requests }
    }

    fn read(&mut self) {
        for channel in self.channels {
            loop {
                let child = IdKey::from_parts(0, self.children + 1, 1).unwrap();
                let Some(event) = self.device.fetch(channel, child).unwrap() else { break };
                if event.kind == CmEvent::ConnectRequest {
                    self.children += 1;
                    // It fails if the client has gone.
                    let param = ConnParam { qp_num: 77, ..PARAM };
                    let _ = self.device.call(&Call::Accept { id: child, param }, &[]);
                }
            }
        }
    }
}

impl Program for Rebalanced {
    fn turn(&mut self, now: Time) -> Turn {
        if !(self.leaves_requests && self.moves_at <= now) {
            self.read();
        }
        if self.moves_at <= now {
            let (from, to) = (self.channels[self.at], self.channels[1 - self.at]);
            self.device.call(&Call::Migrate { id: self.listener, from, to }, &[]).unwrap();
            self.at = 1 - self.at;
            self.moves_at = now.after(self.node.random_time(STAY));
        }
        Turn::Wait(Some(self.moves_at))
    }
}
