//! The place of a machine on a wire.

/// The place of a machine on a wire that it shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The number of the machine, from 1 on: the last byte of its addresses.
    pub(crate) machine: u8,
    /// The UDP port of the wire on the host's loopback device.
    pub(crate) port: u16,
}

impl Segment {
    /// The most machines.
    pub(crate) const MOST: u8 = 9;

    /// The values of QEMU's options `-netdev` and `-device`.
    pub(crate) fn arguments(self) -> [(&'static str, String); 2] {
        let Segment { machine, port } = self;
        [
            ("-netdev", format!("socket,id=wire,mcast=230.0.0.1:{port},localaddr=127.0.0.1")),
            // It boots from no network and needs no ROM.
            ("-device", format!("virtio-net-pci,netdev=wire,mac=02:00:00:00:97:0{machine},romfile=")),
        ]
    }
}
