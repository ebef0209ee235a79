//! Options of an id: which ones the core and the kernel accept in which state.

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{Call, CmOption, Errno, IdKey, PortSpace};

fn takes<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey, option: CmOption) -> Check {
    Ok(b.endpoint(side).drive().set_option(id, option)?)
}

/// Expects a refusal by the core, and by the kernel for the bare call.
fn refuses<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey, option: CmOption) -> Check {
    let what = format!("{option:?}");
    fails(&what, b.endpoint(side).drive().set_option(id, option), Errno::EINVAL)?;
    same(&what, b.endpoint(side).bare(&Call::SetOption { id, option }, &[]), Err(Errno::EINVAL))
}

/// The first options are taken, the other ones are refused.
fn legal<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey, taken: &[CmOption], refused: &[CmOption]) -> Check {
    for &option in taken {
        takes(b, side, id, option)?;
    }
    refused.iter().try_for_each(|&option| refuses(b, side, id, option))
}

pub(super) fn options_are_taken_where_they_are_for<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let [tos, timeout, af_only] = [CmOption::Tos(8), CmOption::AckTimeout(17), CmOption::AfOnly(true)];
    let [reuse, no_reuse] = [true, false].map(CmOption::ReuseAddr);
    let idle = b.idle()?;
    legal(b, Side::Client, idle, &[tos, reuse, no_reuse, af_only, CmOption::AfOnly(false), timeout], &[])?;
    let bound = b.bound()?;
    legal(b, Side::Client, bound, &[tos, reuse, af_only, timeout], &[no_reuse])?;
    let listening = b.listen()?;
    // The kernel would store them, and they would have no effect.
    for option in [tos, timeout] {
        fails("for a listener", b.server.drive().set_option(listening, option), Errno::EINVAL)?;
        same("on the bare device", b.server.bare(&Call::SetOption { id: listening, option }, &[]), Ok(()))?;
    }
    legal(b, Side::Server, listening, &[], &[reuse, no_reuse, af_only])?;
    let resolved = b.addr_resolved()?;
    legal(b, Side::Client, resolved, &[tos, reuse, timeout], &[no_reuse, af_only])?;
    let channel = b.client.channel;
    let datagrams = b.client.drive().create_id(Some(channel), PortSpace::Udp)?;
    legal(b, Side::Client, datagrams, &[tos, reuse, no_reuse, af_only], &[timeout])
}
