//! Many cycles leave no resource behind.

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{PdOf, Side, pdl};
use cmid_harness::{Check, Env, Fixture, TestMr, TestPd};
use cmid_proto::datapath::prelude::*;
use cmid_proto::memory::{Access, Change, Fallback, Policy};
use cmid_proto::{Acks, CmEvent, Time};

use super::memory;

/// Cycles before measuring: allocators and tables grow to their final size.
const WARM_UP: u32 = 40;
const CYCLES: u32 = 200;
/// One byte per cycle would be a leak. A few kilobytes in total are overhead of the allocator.
const SLACK: u64 = 8 * 1024;

/// Connections that end in every way, failures included: descriptors and heap are as before.
pub(super) fn nothing_is_left_after_200_cycles<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    repeatedly(b, one)?;
    same("client ids", b.client.drive().core().ids().count(), 0)?;
    same("server ids", b.server.drive().core().ids().count(), 1)
}

/// PDs and memory that end in every way that needs no fault: deregistered, refused, registered anew, dropped while
/// pinned.
pub(super) fn nothing_is_left_of_memory_after_200_cycles<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let own = b.pd(Side::Client)?;
    repeatedly(b, |b, cycle| one_of_memory(b, &own, cycle))
}

/// Fails unless descriptors and heap are the same after the cycles as before.
fn repeatedly<L: Env>(b: &mut Fixture<'_, L>, mut one: impl FnMut(&mut Fixture<'_, L>, u32) -> Check) -> Check {
    for cycle in 0..WARM_UP {
        one(b, cycle)?;
    }
    let before = (descriptors()?, b.env.heap());
    for cycle in 0..CYCLES {
        one(b, cycle)?;
    }
    let after = (descriptors()?, b.env.heap());
    same("descriptors", after.0, before.0)?;
    ensure(before.1 > 0, || "the heap could not be measured".into())?;
    ensure(after.1 <= before.1 + SLACK, || format!("heap: {} bytes before, {} after", before.1, after.1))
}

fn one_of_memory<L: Env>(b: &mut Fixture<'_, L>, own: &PdOf<L>, cycle: u32) -> Check {
    let (pd, new) = (b.pd(Side::Server)?, b.pd(Side::Server)?);
    let mut mr = memory::register(&pd, memory::bytes(1), memory::READABLE)?;
    let wanted = Change::default().to_buffer(memory::bytes(2)).to_pd(new.clone());
    match cycle % 4 {
        0 => drop(mr.reregister_vec(wanted, Policy::default())),
        1 => drop(mr.reregister_vec(wanted, Policy { fallback: Fallback::Anew, ..Policy::default() })),
        2 => drop(pd.register_vec(memory::bytes(3), Access::REMOTE_WRITE)),
        _ => {
            let (client, mut server) = b.join(own, &pd)?;
            server.qp.post_recv(1, mr.sge(0..memory::LEN))?;
            drop(mr);
            b.part((client, server))?;
            settle(b)?;
            pd.dealloc()?;
            return Ok(new.dealloc()?);
        }
    }
    memory::deregister(mr)?;
    pd.dealloc()?;
    Ok(new.dealloc()?)
}

fn one<L: Env>(b: &mut Fixture<'_, L>, cycle: u32) -> Check {
    let (client, server) = match cycle % 4 {
        // A whole life, with a migration into synchronous mode and out again.
        0 => {
            let (client, server) = b.connected()?;
            let channel = b.client.channel;
            let drive = b.client.drive();
            drive.migrate(client, None, Time::NEVER)?;
            drive.migrate(client, Some(channel), Time::NEVER)?;
            drive.disconnect(client, Time::NEVER)?;
            b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
            (client, server)
        }
        // Migrated to a channel that is closed with the id; destroyed with events pending.
        1 => {
            let (client, server) = b.connected()?;
            let drive = b.server.drive();
            let passing = drive.open_channel(Acks::OnDelivery)?;
            drive.migrate(server, Some(passing), Time::NEVER)?;
            b.client.drive().disconnect(client, Time::NEVER)?;
            b.destroy(Side::Server, server)?;
            b.server.drive().close_channel(passing)?;
            return b.destroy(Side::Client, client).and_then(|()| settle(b));
        }
        // Rejected.
        2 => {
            let (client, server) = b.requested()?;
            b.server.drive().reject(server, b"no")?;
            b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
            (client, server)
        }
        // Destroyed on both sides before the request is answered.
        _ => b.requested()?,
    };
    b.destroy(Side::Client, client)?;
    b.destroy(Side::Server, server)?;
    settle(b)
}

/// Reads the remaining events of both sides.
fn settle<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for side in [Side::Client, Side::Server] {
        let channel = b.endpoint(side).channel;
        b.pump(std::time::Duration::ZERO)?;
        while b.endpoint(side).drive().next_event(channel).is_some() {}
    }
    Ok(())
}

fn descriptors() -> Check<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
