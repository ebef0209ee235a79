//! A machine among several on a wire.

use std::path::PathBuf;

/// What a machine has that shares a wire with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The number of the machine, from 1 on: the last byte of its addresses.
    pub(crate) machine: u8,
    /// The UDP port of the wire on the host's loopback device.
    pub(crate) port: u16,
    /// The image of its disk.
    pub(crate) disk: Option<PathBuf>,
    /// A TCP port on the host's loopback device, and the port of the machine that it leads to.
    pub(crate) forwarded: Option<(u16, u16)>,
}

impl Segment {
    /// The most machines.
    pub(crate) const MOST: u8 = 9;

    /// QEMU's name of the network device on the wire.
    pub(crate) const WIRE: &str = "wire";

    pub(crate) fn new(machine: u8, port: u16) -> Self {
        Segment { machine, port, disk: None, forwarded: None }
    }

    /// The values of QEMU's options `-netdev` and `-device` for the networks.
    pub(crate) fn arguments(&self) -> Vec<(&'static str, String)> {
        let Segment { machine, port, .. } = self;
        let wire = Segment::WIRE;
        let mut arguments = vec![
            ("-netdev", format!("socket,id={wire},mcast=230.0.0.1:{port},localaddr=127.0.0.1")),
            // It boots from no network and needs no ROM.
            ("-device", format!("virtio-net-pci,netdev={wire},mac=02:00:00:00:97:0{machine},romfile=")),
        ];
        if let Some((host, guest)) = self.forwarded {
            let forward = format!("hostfwd=tcp:127.0.0.1:{host}-:{guest}");
            arguments.push(("-netdev", format!("user,id=host,restrict=on,{forward}")));
            arguments.push(("-device", "virtio-net-pci,netdev=host,romfile=".to_owned()));
        }
        arguments
    }
}
