//! Options of an id: which ones the core and the kernel accept in which state.

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::Side;
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{Call, CmEvent, CmOption, Device, Ece, Errno, IdKey, PortSpace};

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
    legal(b, Side::Client, datagrams, &[tos, reuse, no_reuse, af_only], &[timeout])?;
    each_side_learns_the_ece_of_the_other(b)
}

/// An answer names the vendor of the request, also without options of its own. With a QP the library sets ECE itself.
fn each_side_learns_the_ece_of_the_other<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let ece = |vendor_id, options| Ece { vendor_id, options };
    let (ours, theirs, other) = (ece(0x15b3, 0x1234_5678), ece(0x15b3, 7), ece(9, 3));
    for (asked, answer, learned) in [
        (Some(ours), Some(theirs), theirs),
        (Some(ours), None, ece(0x15b3, 0)),
        (Some(ours), Some(other), ece(0x15b3, 3)),
        (None, Some(other), ece(0, 3)),
    ] {
        let client = b.resolved()?;
        asked.map_or(Ok(()), |asked| b.client.drive().set_ece(client, asked))?;
        same("before the request", b.client.drive().remote_ece(client)?, Ece::default())?;
        b.connect(client, &[])?;
        let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
        same("that of the request", b.server.drive().remote_ece(server)?, asked.unwrap_or_default())?;
        answer.map_or(Ok(()), |answer| b.server.drive().set_ece(server, answer))?;
        b.answer(client, server)?;
        same("that of the answer", b.client.drive().remote_ece(client)?, learned)?;
    }
    let client = b.resolved()?;
    let set = |ece| Call::SetEce { id: client, ece };
    same("of no vendor", b.client.bare(&set(ece(0, 1)), &[]), Err(Errno::EINVAL))?;
    b.client.drive().set_ece(client, ours)?;
    b.attach_qp(Side::Client, client)?;
    same("with a QP", b.client.bare(&set(ours), &[]), Err(Errno::EINVAL))?;
    same("with a QP", b.client.drive().device_mut().remote_ece(client), Err(Errno::EINVAL))?;
    b.connect(client, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    same("that of the QP: none", b.server.drive().remote_ece(server)?, Ece::default())?;
    let gone = b.idle()?;
    b.destroy(Side::Client, gone)?;
    same("gone", b.client.bare(&Call::SetEce { id: gone, ece: ours }, &[]), Err(Errno::ENOENT))?;
    same("gone", b.client.drive().device_mut().remote_ece(gone), Err(Errno::ENOENT))
}
