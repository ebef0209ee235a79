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

pub(super) fn options_are_taken_where_they_are_for<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let channel = b.client.channel;
    let idle = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
    for option in [CmOption::Tos(8), CmOption::ReuseAddr(true), CmOption::ReuseAddr(false), CmOption::AfOnly(true)] {
        takes(b, Side::Client, idle, option)?;
    }
    let listening = b.listen()?;
    // The kernel would store it, and it would have no effect.
    let late = b.server.drive().set_option(listening, CmOption::Tos(8));
    fails("a type of service for a listener", late, Errno::EINVAL)?;
    refuses(b, Side::Server, listening, CmOption::ReuseAddr(true))?;
    refuses(b, Side::Server, listening, CmOption::AfOnly(true))?;
    let resolved = b.addr_resolved()?;
    takes(b, Side::Client, resolved, CmOption::ReuseAddr(true))?;
    refuses(b, Side::Client, resolved, CmOption::ReuseAddr(false))?;
    takes(b, Side::Client, resolved, CmOption::AckTimeout(17))?;
    let datagrams = b.client.drive().create_id(Some(channel), PortSpace::Udp)?;
    refuses(b, Side::Client, datagrams, CmOption::AckTimeout(17))
}
