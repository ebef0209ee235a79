//! Section "vanishing peers": behaviours 23 to 27, 37 and 38.

use cmid_harness::failure::{fails, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::datapath::QpState;
use cmid_proto::{CmEvent, Errno, State, Time};

/// Reason of the IB CM: the QP number is in use already.
const STALE_CONNECTION: i32 = 10;

pub(super) fn behaviour_23_the_client_goes_before_the_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    for with_qp in [false, true] {
        let (client, server) = b.requested()?;
        if with_qp {
            b.attach_qp(Side::Server, server)?;
        }
        b.destroy(Side::Client, client)?;
        b.quiet(Side::Server)?;
        if !with_qp {
            fails("a QP for it", b.server.attach_qp(server), Errno::EINVAL)?;
        }
        let param = b.param();
        fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
        b.quiet(Side::Server)?;
        b.destroy(Side::Server, server)?;
    }
    Ok(())
}

pub(super) fn behaviour_24_the_client_goes_before_its_request_is_read<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.frozen = Some(Side::Server);
    b.connect(client, &[])?;
    std::thread::sleep(b.env.quiet());
    b.destroy(Side::Client, client)?;
    std::thread::sleep(b.env.quiet());
    b.frozen = None;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)
}

pub(super) fn behaviour_25_the_client_goes_without_reading_the_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.frozen = Some(Side::Client);
    b.accept(server, &[])?;
    std::thread::sleep(b.env.quiet());
    b.destroy(Side::Client, client)?;
    b.expect(Side::Server, server, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_26_the_client_goes_after_reading_the_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.responded()?;
    b.destroy(Side::Client, client)?;
    b.expect(Side::Server, server, CmEvent::Rejected, 28, pdl::REJECTED).map(drop)
}

pub(super) fn behaviour_27_the_server_goes_before_the_client_reads<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, &[])?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.frozen = Some(Side::Client);
    b.accept(server, &[])?;
    std::thread::sleep(b.env.quiet());
    b.destroy(Side::Server, server)?;
    std::thread::sleep(b.env.quiet());
    b.frozen = None;
    // librdmacm detects it at the confirmation, and discards the REJECTED that follows.
    b.expect(Side::Client, client, CmEvent::ConnectError, -1, pdl::RESPONSE)?;
    b.qp_is(Side::Client, client, QpState::ERR)?;
    b.quiet(Side::Client)?;
    same("client", b.client.drive().core().state(client), Some(State::Failed))
}

pub(super) fn behaviour_37_a_qp_number_is_used_again<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let param = b.param();
    let first = b.resolved()?;
    b.client.drive().connect(first, param, &[], Time::NEVER)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.answer(first, server)?;
    b.confirm(first, server)?;
    let second = b.resolved()?;
    b.client.drive().connect(second, param, &[], Time::NEVER)?;
    // The order of events of two ids is not defined.
    let channel = b.client.channel;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let event = b.next(Side::Client, channel, &"REJECTED and DISCONNECTED")?;
        seen.push((event.cm(), event.id, event.status));
    }
    let rejected = (Some(CmEvent::Rejected), second, STALE_CONNECTION);
    let disconnected = (Some(CmEvent::Disconnected), first, 0);
    seen.sort_by_key(|(kind, ..)| *kind != Some(CmEvent::Rejected));
    same("client", seen, vec![rejected, disconnected])?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_38_the_same_qp_number_on_both_sides<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let param = b.param();
    let client = b.resolved()?;
    b.client.drive().connect(client, param, &[], Time::NEVER)?;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.server.drive().accept(server, param, &[], Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Rejected, STALE_CONNECTION, pdl::REJECTED)?;
    b.quiet(Side::Client)
}
