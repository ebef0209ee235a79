//! Options of an id: which are taken in which state, by the core and by the kernel.

use cmid_harness::bench::Who;
use cmid_harness::failure::{fails, same};
use cmid_harness::{Bench, Check, Lab};
use cmid_proto::{Call, CmOption, Errno, IdKey, PortSpace};

fn takes<L: Lab>(b: &mut Bench<'_, L>, who: Who, id: IdKey, option: CmOption) -> Check {
    Ok(b.side(who).drive().set_option(id, option)?)
}

/// Refused by the core, and by the kernel if it is asked past the core.
fn refuses<L: Lab>(b: &mut Bench<'_, L>, who: Who, id: IdKey, option: CmOption) -> Check {
    let what = format!("{option:?}");
    fails(&what, b.side(who).drive().set_option(id, option), Errno::EINVAL)?;
    same(&what, b.side(who).bare(&Call::SetOption { id, option }, &[]), Err(Errno::EINVAL))
}

pub(super) fn options_are_taken_where_they_are_for<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    let channel = b.client.channel;
    let idle = b.client.drive().create_id(Some(channel), PortSpace::Tcp)?;
    for option in [CmOption::Tos(8), CmOption::ReuseAddr(true), CmOption::ReuseAddr(false), CmOption::AfOnly(true)] {
        takes(b, Who::Client, idle, option)?;
    }
    let listening = b.listen()?;
    takes(b, Who::Server, listening, CmOption::Tos(8))?;
    refuses(b, Who::Server, listening, CmOption::ReuseAddr(true))?;
    refuses(b, Who::Server, listening, CmOption::AfOnly(true))?;
    let resolved = b.addr_resolved()?;
    takes(b, Who::Client, resolved, CmOption::ReuseAddr(true))?;
    refuses(b, Who::Client, resolved, CmOption::ReuseAddr(false))?;
    takes(b, Who::Client, resolved, CmOption::AckTimeout(17))?;
    let datagrams = b.client.drive().create_id(Some(channel), PortSpace::Udp)?;
    refuses(b, Who::Client, datagrams, CmOption::AckTimeout(17))
}
