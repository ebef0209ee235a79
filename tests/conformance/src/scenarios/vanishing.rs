//! Section "vanishing peers": rows 23 to 27, 37 and 38.

use cmid_harness::bench::{Who, pdl};
use cmid_harness::failure::{fails, same};
use cmid_harness::{Bench, Check, Lab, QpState};
use cmid_proto::{CmEvent, Errno, State, Time};

/// Reason of the IB CM: somebody uses the QP number already.
const STALE_CONNECTION: i32 = 10;

pub(super) fn row_23_the_client_goes_before_the_accept<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    for with_qp in [false, true] {
        let (client, server) = b.requested()?;
        if with_qp {
            b.attach_qp(Who::Server, server)?;
        }
        b.destroy(Who::Client, client)?;
        b.quiet(Who::Server)?;
        if !with_qp {
            fails("a QP for it", b.server.attach_qp(server), Errno::EINVAL)?;
        }
        let param = b.param();
        fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)?;
        b.quiet(Who::Server)?;
        b.destroy(Who::Server, server)?;
    }
    Ok(())
}

pub(super) fn row_24_the_client_goes_before_its_request_is_read<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.frozen = Some(Who::Server);
    b.connect(client, &[])?;
    std::thread::sleep(b.lab.quiet());
    b.destroy(Who::Client, client)?;
    std::thread::sleep(b.lab.quiet());
    b.frozen = None;
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    let param = b.param();
    fails("accept", b.server.drive().accept(server, param, &[], Time::NEVER), Errno::EINVAL)
}

pub(super) fn row_25_the_client_goes_without_reading_the_answer<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.requested()?;
    b.frozen = Some(Who::Client);
    b.accept(server, &[])?;
    std::thread::sleep(b.lab.quiet());
    b.destroy(Who::Client, client)?;
    b.expect(Who::Server, server, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.server.drive().disconnect(server, Time::NEVER)?;
    b.quiet(Who::Server)
}

pub(super) fn row_26_the_client_goes_after_reading_the_answer<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let (client, server) = b.requested()?;
    b.accept(server, &[])?;
    b.expect(Who::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.destroy(Who::Client, client)?;
    b.expect(Who::Server, server, CmEvent::Rejected, 28, pdl::REJECTED).map(drop)
}

pub(super) fn row_27_the_server_goes_before_the_client_reads<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.attach_qp(Who::Client, client)?;
    b.connect(client, &[])?;
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    b.frozen = Some(Who::Client);
    b.accept(server, &[])?;
    std::thread::sleep(b.lab.quiet());
    b.destroy(Who::Server, server)?;
    std::thread::sleep(b.lab.quiet());
    b.frozen = None;
    // The library finds out when it confirms, and keeps the REJECTED that follows to itself.
    b.expect(Who::Client, client, CmEvent::ConnectError, -1, pdl::RESPONSE)?;
    b.qp_is(Who::Client, client, QpState::Err)?;
    b.quiet(Who::Client)?;
    same("client", b.client.drive().core().state(client), Some(State::Failed))
}

pub(super) fn row_37_a_qp_number_is_used_again<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let param = b.param();
    let first = b.resolved()?;
    b.client.drive().connect(first, param, &[], Time::NEVER)?;
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])?;
    b.expect(Who::Client, first, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.client.drive().establish(first)?;
    b.expect(Who::Server, server, CmEvent::Established, 0, pdl::NONE)?;
    let second = b.resolved()?;
    b.client.drive().connect(second, param, &[], Time::NEVER)?;
    // Nothing orders two ids.
    let channel = b.client.channel;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let event = b.next(Who::Client, channel, &"REJECTED and DISCONNECTED")?;
        seen.push((event.cm(), event.id, event.status));
    }
    let rejected = (Some(CmEvent::Rejected), second, STALE_CONNECTION);
    let disconnected = (Some(CmEvent::Disconnected), first, 0);
    seen.sort_by_key(|(kind, ..)| *kind != Some(CmEvent::Rejected));
    same("client", seen, vec![rejected, disconnected])?;
    b.quiet(Who::Server)
}

pub(super) fn row_38_the_same_qp_number_on_both_sides<L: Lab>(b: &mut Bench<'_, L>) -> Check {
    b.listen()?;
    let param = b.param();
    let client = b.resolved()?;
    b.client.drive().connect(client, param, &[], Time::NEVER)?;
    let server = b.expect_any(Who::Server, CmEvent::ConnectRequest)?.id;
    b.server.drive().accept(server, param, &[], Time::NEVER)?;
    b.expect(Who::Server, server, CmEvent::Rejected, STALE_CONNECTION, pdl::REJECTED)?;
    b.quiet(Who::Client)
}
