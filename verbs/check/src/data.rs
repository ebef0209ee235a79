//! Behaviours of the data path.

use anyhow::{Context as _, Result, ensure};
use cmid_proto::datapath::{Access, Completion, Remote, SendWr, WcStatus, prelude::*};
use cmid_proto::memory::{Change, Policy, Way};

use crate::client::Client;
use crate::outcome::{Behaviour, Unsupported, classified};
use crate::server::MEMORY;
use crate::side::{Connected, OWN, Queues, SPAN};
use crate::wire::{Kind, Role};

/// Runs all of them.
pub(crate) fn check<D: DataPath>(client: &Client<'_, D>) -> Vec<Behaviour> {
    let run =
        |name, behaviour: fn(&Client<'_, D>) -> Result<()>| Behaviour::run(name, client.verbose, || behaviour(client));
    vec![
        run("send and receive", |client| echo(client, Queues::Plain)),
        run("inline send", |client| echo(client, Queues::Inline)),
        run("shared receive queue", |client| echo(client, Queues::Shared)),
        run("RDMA write and read", write_and_read),
        run("a write without the right is refused", wrong_key),
        run("atomic operations", atomics),
        run("memory windows of type 2", window),
        run("re-registration: memory (CHANGE_TRANSLATION)", rereg_memory),
        run("re-registration: protection domain (CHANGE_PD)", rereg_pd),
        run("re-registration: rights (CHANGE_ACCESS)", rereg_access),
    ]
}

fn echo<D: DataPath>(client: &Client<'_, D>, queues: Queues) -> Result<()> {
    let mut connected = client.connect(Role::Serve, queues)?;
    // More than the receives that are posted at a time.
    for number in 0..20 {
        let numbers = [number, !number, number << 32];
        let echoed = connected.side.request(Kind::Echo, numbers)?;
        ensure!(echoed == numbers, "sent {numbers:x?}, received {echoed:x?}");
    }
    connected.disconnect()
}

/// Requests memory with these rights from the server.
pub(crate) fn remote<D: DataPath>(connected: &mut Connected<D>, access: Access) -> Result<(Remote, u64)> {
    let [addr, rkey, first] = connected.side.request(Kind::Register, [access.bits().into(), 0, 0])?;
    Ok((Remote { addr, rkey: u32::try_from(rkey)? }, first))
}

/// Reads from the server into a region.
fn read<D: DataPath>(connected: &mut Connected<D>, into: &D::Mr, from: Remote) -> Result<()> {
    let request = SendWr::read(OWN, into.sge(0..MEMORY), from);
    connected.side.qp.post_send(request).map_err(|error| classified("posting a read", error))?;
    connected.side.succeed("an RDMA read")
}

/// Writes to the server from a region, and returns the completion.
fn write<D: DataPath>(connected: &mut Connected<D>, from: &D::Mr, to: Remote) -> Result<Completion> {
    let request = SendWr::write(OWN, from.sge(0..MEMORY), to);
    connected.side.qp.post_send(request).map_err(|error| classified("posting a write", error))?;
    connected.side.complete()
}

fn contents<M: MemoryRegion>(region: &M) -> Result<Vec<u8>> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).context("reading memory")?;
    Ok(bytes)
}

/// The contents of the server's memory.
fn pattern() -> Vec<u8> {
    (0..MEMORY).map(|at| at as u8).collect()
}

fn write_and_read<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connected = client.serve()?;
    let (remote, _) = remote(&mut connected, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    let mut from = connected.side.register(MEMORY, Access::LOCAL_WRITE)?;
    let bytes: Vec<u8> = (0..MEMORY).map(|at| (at * 7 + 3) as u8).collect();
    from.write(0, &bytes).context("writing memory")?;
    let written = write(&mut connected, &from, remote)?;
    ensure!(written.is_success(), "an RDMA write ended with \"{}\"", written.status);
    let into = connected.side.register(MEMORY, Access::LOCAL_WRITE)?;
    read(&mut connected, &into, remote)?;
    ensure!(contents(&into)? == bytes, "the bytes that were read are not those that were written");
    connected.disconnect()
}

/// Checks that a write was refused.
fn refused<D: DataPath>(connected: &mut Connected<D>, completion: Completion) -> Result<()> {
    let status = completion.status;
    if completion.is_success() || status == WcStatus::LOC_QP_OP_ERR {
        // On iWARP a write completes before the peer has checked it, or fails here if the refusal comes while it is sent
        // (`siw_qp_sq_process`). The refusal ends the connection.
        let closed = connected.connection.wait_closed(SPAN);
        return closed.with_context(|| format!("the write ended with \"{status}\", and the connection has not ended"));
    }
    let known = [WcStatus::REM_ACCESS_ERR, WcStatus::REM_OP_ERR, WcStatus::WR_FLUSH_ERR, WcStatus::FATAL_ERR];
    ensure!(known.contains(&status), "the write ended with \"{status}\"");
    Ok(())
}

fn wrong_key<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connected = client.serve()?;
    let (remote, _) = remote(&mut connected, Access::LOCAL_WRITE)?;
    let from = connected.side.register(MEMORY, Access::LOCAL_WRITE)?;
    let written = write(&mut connected, &from, remote)?;
    refused(&mut connected, written)
}

fn atomics<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connected = client.serve()?;
    let (remote, first) = remote(&mut connected, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    let result = connected.side.register(8, Access::LOCAL_WRITE)?;
    let requests = [
        SendWr::fetch_add(OWN, result.sge(0..8), remote, 5),
        SendWr::compare_swap(OWN, result.sge(0..8), remote, first.wrapping_add(5), 77),
        SendWr::fetch_add(OWN, result.sge(0..8), remote, 0),
    ];
    for (request, expected) in requests.into_iter().zip([first, first.wrapping_add(5), 77]) {
        let posted = connected.side.qp.post_send(request);
        // iWARP has none, and other devices may have none: the post is refused.
        posted.map_err(|errno| Unsupported(format!("posting an atomic operation: {errno}")))?;
        let completion = connected.side.complete()?;
        let status = completion.status;
        if [WcStatus::LOC_QP_OP_ERR, WcStatus::REM_INV_REQ_ERR].contains(&status) {
            return Err(Unsupported(format!("an atomic operation ended with \"{status}\"")).into());
        }
        ensure!(completion.is_success(), "an atomic operation ended with \"{status}\"");
        let old = result.load_relaxed::<u64>(0).context("reading memory")?;
        ensure!(old == expected, "an atomic operation returned {old}, not {expected}");
    }
    connected.disconnect()
}

fn window<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    let mut connected = client.serve()?;
    let [addr, window, region] = connected.side.request(Kind::Bind, [0; 3])?;
    let through = |key: u64| Ok::<_, anyhow::Error>(Remote { addr, rkey: u32::try_from(key)? });
    let mut from = connected.side.register(MEMORY, Access::LOCAL_WRITE)?;
    from.write(0, &pattern()).context("writing memory")?;
    let written = write(&mut connected, &from, through(window)?)?;
    ensure!(written.is_success(), "a write through the window ended with \"{}\"", written.status);
    let into = connected.side.register(MEMORY, Access::LOCAL_WRITE)?;
    read(&mut connected, &into, through(region)?)?;
    ensure!(contents(&into)? == pattern(), "the region does not have what was written through the window");
    connected.side.request(Kind::Unbind, [0; 3])?;
    let written = write(&mut connected, &from, through(window)?)?;
    refused(&mut connected, written).context("after the invalidation of the window")
}

/// Changes a region in place, and checks the result by reads from the server before and after.
fn rereg<D: DataPath>(
    client: &Client<'_, D>,
    access: Access,
    change: impl FnOnce(&mut Connected<D>) -> Result<Change<D::Pd, <D::Mr as MemoryRegion>::Buffer>>,
    after: impl FnOnce(&mut Connected<D>, &mut D::Mr, Remote) -> Result<()>,
) -> Result<()> {
    let mut connected = client.serve()?;
    let (remote, _) = remote(&mut connected, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)?;
    let mut region = connected.side.register(MEMORY, access)?;
    let change = change(&mut connected)?;
    match region.reregister(change, Policy::default()).result {
        Ok(Way::InPlace) => after(&mut connected, &mut region, remote)?,
        Ok(Way::Anew) => anyhow::bail!("it was registered anew"),
        Err(error) => {
            let errno = error.errno();
            // The old registration is valid after a refusal.
            if access.contains(Access::LOCAL_WRITE) {
                read(&mut connected, &region, remote).with_context(|| format!("after {error}"))?;
            }
            return Err(classified("ibv_rereg_mr", errno));
        }
    }
    connected.disconnect()
}

fn rereg_memory<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    rereg(
        client,
        Access::LOCAL_WRITE,
        |_| Ok(Change::default().to_buffer(vec![0; MEMORY])),
        |connected, region, remote| {
            read(connected, region, remote)?;
            ensure!(contents(region)? == pattern(), "a read did not reach the new memory");
            Ok(())
        },
    )
}

fn rereg_pd<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    rereg(
        client,
        Access::LOCAL_WRITE,
        |connected| Ok(Change::default().to_pd(other_pd(connected)?)),
        |connected, region, remote| {
            let request = SendWr::read(OWN, region.sge(0..MEMORY), remote);
            ensure!(connected.side.qp.post_send(request).is_err(), "a QP of the old PD may use the region");
            let back = Change::default().to_pd(connected.side.pd.clone());
            region.reregister(back, Policy::default()).result.context("the way back")?;
            read(connected, region, remote)
        },
    )
}

/// Another PD on the same device.
fn other_pd<D: DataPath>(connected: &mut Connected<D>) -> Result<D::Pd> {
    let (id, driver) = connected.connection.parts();
    driver.drive().device_mut().alloc_pd(id).map_err(|errno| classified("ibv_alloc_pd", errno))
}

fn rereg_access<D: DataPath>(client: &Client<'_, D>) -> Result<()> {
    rereg(
        client,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        |_| Ok(Change::default().to_access(Access::empty())),
        |connected, region, remote| {
            let request = SendWr::read(OWN, region.sge(0..MEMORY), remote);
            ensure!(connected.side.qp.post_send(request).is_err(), "read-only memory may be written to");
            let back = Change::default().to_access(Access::LOCAL_WRITE);
            region.reregister(back, Policy::default()).result.context("the way back")?;
            read(connected, region, remote)
        },
    )
}
