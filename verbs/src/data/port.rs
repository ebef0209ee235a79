//! What a port is, and its GIDs.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::net::Ipv6Addr;
use std::fs;
use std::path::{Path, PathBuf};

use cmid_proto::Errno;
use cmid_proto::datapath::{GidKind, LinkLayer, PortAttrs, PortGid, PortState};

use crate::data::Context;
use crate::ffi::{self, ibv_gid_entry};

/// A table of GIDs is not longer.
const TABLE_MAX: u32 = 4096;

impl Context {
    /// Returns what a port is now.
    ///
    /// # Errors
    /// `EINVAL` for a port that does not exist; the errno of ibv_query_port(3).
    pub(crate) fn port_attrs(&self, port: u8) -> Result<PortAttrs, Errno> {
        // Soft-RoCE answers for any port.
        if port == 0 || port > self.query()?.phys_port_cnt {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the context is open.
        let attr = unsafe { ffi::query_port(self.as_ptr(), port) }?;
        let mut attrs = PortAttrs::in_state(PortState(attr.state));
        (attrs.max_mtu, attrs.active_mtu, attrs.lid) = (mtu_of(attr.max_mtu), mtu_of(attr.active_mtu), attr.lid);
        attrs.link_layer = match attr.link_layer {
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        };
        (attrs.width, attrs.lane_speed) = (width_of(attr.active_width), speed_of(attr.active_speed));
        attrs.gid_table_len = u32::try_from(attr.gid_tbl_len).unwrap_or(0);
        Ok(attrs)
    }

    /// Returns the GIDs of a port: from the library, or from sysfs if it is older than rdma-core 32.
    ///
    /// # Errors
    /// As [`Context::port_attrs`]; the errno of ibv_query_gid_table(3).
    pub(crate) fn gids(&self, port: u8) -> Result<Vec<PortGid>, Errno> {
        let len = self.port_attrs(port)?.gid_table_len.min(TABLE_MAX);
        match self.gids_of_library(port, len) {
            Err(Errno(libc::EOPNOTSUPP)) => {
                let name = self.name().to_string_lossy();
                let port = format!("/sys/class/infiniband/{name}/ports/{port}");
                Ok(gids_of_sysfs(Path::new(&port), len))
            }
            gids => gids,
        }
    }

    fn gids_of_library(&self, port: u8, len: u32) -> Result<Vec<PortGid>, Errno> {
        // It returns the entries of all ports.
        let room = len as usize * usize::from(self.query()?.phys_port_cnt.max(1));
        // SAFETY: zeros are a value of it: integers, and a union of integers.
        let empty = || unsafe { MaybeUninit::<ibv_gid_entry>::zeroed().assume_init() };
        let mut entries: Vec<_> = (0..room).map(|_| empty()).collect();
        // SAFETY: the context is open.
        let filled = unsafe { ffi::query_gid_table(self.as_ptr(), &mut entries) }?;
        let of_port = entries.iter().take(filled).filter(|entry| entry.port_num == u32::from(port));
        Ok(of_port.map(port_gid).collect())
    }
}

fn port_gid(entry: &ibv_gid_entry) -> PortGid {
    let kind = match entry.gid_type {
        0 => GidKind::InfiniBand,
        1 => GidKind::RoceV1,
        2 => GidKind::RoceV2,
        _ => GidKind::Unknown,
    };
    // SAFETY: the library has written all 16 bytes, and each is a value.
    let gid = unsafe { entry.gid.raw };
    PortGid { index: entry.gid_index, gid, kind, net_device: interface_name(entry.ndev_ifindex) }
}

/// Returns the name of a network interface; `None` for 0, and if it is gone.
fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the name has room for `IF_NAMESIZE` bytes.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has written a string of C there, and returned its start.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// Returns the GIDs of the folder of a port in sysfs. An empty entry has zeros, and its type cannot be read.
fn gids_of_sysfs(port: &Path, len: u32) -> Vec<PortGid> {
    let read = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let entry = |index: u32| {
        let gid: Ipv6Addr = read(port.join(format!("gids/{index}")))?.parse().ok()?;
        if gid.is_unspecified() {
            return None;
        }
        let kind = match read(port.join(format!("gid_attrs/types/{index}"))).as_deref() {
            Some("IB/RoCE v1") if is_ethernet(port) => GidKind::RoceV1,
            Some("IB/RoCE v1") => GidKind::InfiniBand,
            Some("RoCE v2") => GidKind::RoceV2,
            _ => GidKind::Unknown,
        };
        let net_device = read(port.join(format!("gid_attrs/ndevs/{index}"))).filter(|name| !name.is_empty());
        Some(PortGid { index, gid: gid.octets(), kind, net_device })
    };
    (0..len).filter_map(entry).collect()
}

fn is_ethernet(port: &Path) -> bool {
    fs::read_to_string(port.join("link_layer")).is_ok_and(|text| text.trim() == "Ethernet")
}

/// Returns the bytes of `enum ibv_mtu`; 0 for an unknown number.
fn mtu_of(code: u32) -> u32 {
    if (1..=5).contains(&code) { 128 << code } else { 0 }
}

/// Returns the lanes of a width (`ib_width_enum_to_int`); 0 for an unknown number.
fn width_of(code: u8) -> u8 {
    match code {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// Returns the Mb/s of the speed of a lane, SDR to NDR; 0 for an unknown number.
fn speed_of(code: u8) -> u32 {
    match code {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gids_of_sysfs_are_those_that_are_not_empty() {
        let port = std::env::temp_dir().join(format!("cmid-port-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = port.join(name);
            fs::create_dir_all(path.parent().expect("a file")).and_then(|()| fs::write(path, text)).expect("written");
        };
        let none = "0000:0000:0000:0000:0000:0000:0000:0000\n";
        for (index, gid) in
            ["fe80:0000:0000:0000:5054:00ff:fe12:3456\n", none, "0000:0000:0000:0000:0000:ffff:0a63:0001\n"]
                .iter()
                .enumerate()
        {
            write(&format!("gids/{index}"), gid);
        }
        for (index, kind) in [(0, "IB/RoCE v1\n"), (2, "RoCE v2\n")] {
            write(&format!("gid_attrs/types/{index}"), kind);
        }
        write("gid_attrs/ndevs/2", "eth0\n");
        let found = gids_of_sysfs(&port, 8);
        let seen: Vec<_> = found.iter().map(|gid| (gid.index, gid.kind, gid.net_device.as_deref())).collect();
        assert_eq!(seen, [(0, GidKind::InfiniBand, None), (2, GidKind::RoceV2, Some("eth0"))]);
        assert_eq!(found[1].ip(), "10.99.0.1".parse::<core::net::IpAddr>().expect("an address"));
        write("link_layer", "Ethernet\n");
        assert_eq!(gids_of_sysfs(&port, 1)[0].kind, GidKind::RoceV1);
        fs::remove_dir_all(&port).expect("removed");
    }

    #[test]
    fn an_interface_has_a_name_and_an_unknown_one_none() {
        assert_eq!((interface_name(0), interface_name(u32::MAX)), (None, None));
        assert_eq!(
            interface_name(1),
            fs::read_to_string("/sys/class/net/lo/ifindex")
                .ok()
                .filter(|index| index.trim() == "1")
                .map(|_| "lo".into())
        );
    }

    #[test]
    fn codes_of_ports_are_their_numbers() {
        assert_eq!([0, 1, 3, 5, 6].map(mtu_of), [0, 256, 1024, 4096, 0]);
        assert_eq!([1, 2, 16, 3].map(width_of), [1, 4, 2, 0]);
        assert_eq!([1, 8, 32, 128, 0].map(speed_of), [2_500, 10_000, 25_000, 100_000, 0]);
    }
}
