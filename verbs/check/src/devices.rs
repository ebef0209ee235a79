//! The RDMA devices of this machine: their addresses and properties.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};
use cmid_blocking::{Blocking, Canceller};
use cmid_proto::datapath::{Caps, DataPath as _, QueuePair as _};
use cmid_proto::{Acks, Errno, IdKey, Limits, PortSpace, Time};
use cmid_verbs::{Backend, PostCalls, Verbs};

/// The largest inline size that is tried, in bytes.
const MAX_INLINE: u32 = 4096;

/// A device with an address.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// Opens the device, with an error that a user understands.
pub(crate) fn open(backend: Backend) -> Result<Verbs> {
    Verbs::open_with(backend).with_context(|| {
        format!("opening the RDMA devices with the backend {backend} (it needs the module rdma_ucm and the nodes in /dev/infiniband)")
    })
}

/// The addresses of this machine that are on RDMA devices: one for each device, of IPv4 if it has one.
pub(crate) fn find(backend: Backend) -> Result<Vec<Found>> {
    let mut addresses: Vec<IpAddr> = if_addrs::get_if_addrs()
        .context("getifaddrs")?
        .into_iter()
        .map(|interface| interface.ip())
        .filter(|ip| !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()))
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    let mut found: Vec<Found> = Vec::new();
    for address in addresses {
        if let Some(name) = device_of(backend, address)? {
            if found.iter().all(|device| device.name != name) {
                found.push(Found { name, address });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The name of the device of an address; `None` if it is on none.
pub(crate) fn device_of(backend: Backend, address: IpAddr) -> Result<Option<String>> {
    let Some((mut driver, id)) = bound(backend, address)? else { return Ok(None) };
    match driver.drive().device_mut().device_of(id) {
        Ok(nic) => Ok(Some(nic.name().to_owned())),
        Err(_) => Ok(None),
    }
}

/// An id that is bound to an address. `None` if it is not on an RDMA device.
fn bound(backend: Backend, address: IpAddr) -> Result<Option<(Blocking<Verbs>, IdKey)>> {
    let mut driver = Blocking::new(open(backend)?, Limits::SINGLE, Canceller::new()?);
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp)?;
    match driver.drive().bind(id, SocketAddr::new(address, 0)) {
        Ok(()) => Ok(Some((driver, id))),
        Err(error) if [Errno::ENODEV, Errno::EADDRNOTAVAIL].contains(&error.errno()) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("binding to {address}")),
    }
}

/// Finds the properties of a device: from sysfs, from ibv_query_device(3), and by creating QPs.
pub(crate) fn properties(backend: Backend, device: &Found) -> Result<BTreeMap<String, String>> {
    let folder = Path::new("/sys/class/infiniband").join(&device.name);
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: String| drop(all.insert(name.to_owned(), value));
    let file = |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).ok();
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let described = || file("node_desc").map(|text| format!("software ({text})"));
    add("driver", driver.or_else(described).unwrap_or_else(|| "unknown".to_owned()));
    let iwarp = file("node_type").is_some_and(|text| text.contains("RNIC"));
    let ethernet = file("ports/1/link_layer").is_some_and(|text| text == "Ethernet");
    add(
        "transport",
        if iwarp {
            "iWARP"
        } else if ethernet {
            "RoCE"
        } else {
            "InfiniBand"
        }
        .to_owned(),
    );
    for (name, path) in [("firmware", "fw_ver"), ("board", "board_id"), ("rate", "ports/1/rate")] {
        if let Some(text) = file(path).filter(|text| !text.is_empty()) {
            add(name, text);
        }
    }
    let known = cmid_verbs::devices().context("querying the devices")?;
    if let Some(info) = known.iter().find(|info| info.name == device.name) {
        add("vendor and part", format!("{:#06x} {}", info.vendor_id, info.vendor_part_id));
        add("responder resources", info.max_responder_resources.to_string());
        add("initiator depth", info.max_initiator_depth.to_string());
        add("work requests in a queue", info.maxima.qp_wr.to_string());
        add("completions in a queue", info.maxima.cqe.to_string());
    }
    if let Some((mut driver, id)) = bound(backend, device.address)? {
        if let Some((_, calls)) = try_qp(&mut driver, id, 0)? {
            let extended = calls == PostCalls::Extended;
            add("posts", if extended { "extended (ibv_wr_*)" } else { "ibv_post_send" }.to_owned());
        }
        add("inline limit", format!("{} bytes", inline_limit(&mut driver, id)?));
        driver.drive().destroy(id, Time::NEVER)?;
    }
    Ok(all)
}

/// The largest size of inline data with which a QP can be created, in bytes.
fn inline_limit(driver: &mut Blocking<Verbs>, id: IdKey) -> Result<u32> {
    // A QP of `least` can be created, one of `above` cannot or is not tried.
    let (mut least, mut above) = (0, MAX_INLINE + 1);
    while above - least > 1 {
        let middle = least + (above - least) / 2;
        match try_qp(driver, id, middle)? {
            // Providers round up.
            Some((rounded, _)) => least = rounded.max(middle).min(above - 1),
            None => above = middle,
        }
    }
    Ok(least)
}

/// Creates a QP and destroys it. Returns its inline size and calls; `None` if the device refuses it.
fn try_qp(driver: &mut Blocking<Verbs>, id: IdKey, max_inline: u32) -> Result<Option<(u32, PostCalls)>> {
    let caps = Caps { max_inline, ..Caps::default() };
    let attached = driver.drive().attach_qp(id, |device, to| {
        let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 32)?);
        let qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        Ok((qp.caps().max_inline, qp.post_calls()))
    });
    match attached {
        Ok(result) => {
            driver.drive().detach_qp(id, |device, id| device.destroy_qp(id)).context("destroying a QP")?;
            Ok(Some(result))
        }
        Err(error) if error.errno() == Errno::EMFILE => Err(error).context("creating a QP"),
        Err(_) => Ok(None),
    }
}
