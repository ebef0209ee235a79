//! Time-outs of the kernel: behaviours 29 to 33. They take minutes on a real kernel; on the simulator virtual time
//! shows them.
//!
//! Times are bounded, not measured: the kernel's timers are coarse, and the retransmission interval of Linux 6.1 is
//! longer.

use std::ops::Range;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, fails};
use cmid_harness::fixture::{SOON, Side, pdl};
use cmid_harness::{Check, Disturbance, Env, Fixture};
use cmid_proto::datapath::QpState;
use cmid_proto::{CmEvent, Errno, PortSpace, Time};

const TIMED_OUT: i32 = -Errno::ETIMEDOUT.0;

/// The time of sixteen transmissions of a request, in seconds.
pub(super) const SENT_IN_VAIN: Range<u64> = 55..125;
/// The same after an MRA of the peer: the peer's kernel has the message, but its program does not read it.
const ASKED_TO_WAIT: Range<u64> = 900..1150;

/// Runs `steps`. Fails unless they take a time in this range.
pub(super) fn takes<L: Env>(
    b: &mut Fixture<'_, L>,
    seconds: Range<u64>,
    steps: impl FnOnce(&mut Fixture<'_, L>) -> Check,
) -> Check {
    b.be_patient(Duration::from_secs(seconds.end));
    let begun = Instant::now();
    steps(b)?;
    let took = begun.elapsed().as_secs();
    b.be_patient(SOON);
    ensure(seconds.contains(&took), || format!("it took {took} s, expected {seconds:?}"))
}

pub(super) fn behaviour_29_nobody_there<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.env.disturb(Disturbance::SilentHost)?;
    let there = std::net::SocketAddr::new(b.net().silent, b.address.port());
    let client = b.resolved_in(PortSpace::Tcp, there)?;
    b.attach_qp(Side::Client, client)?;
    b.connect(client, &[])?;
    takes(b, SENT_IN_VAIN, |b| b.expect(Side::Client, client, CmEvent::Unreachable, TIMED_OUT, pdl::NONE).map(drop))?;
    b.qp_is(Side::Client, client, QpState::INIT)?;
    let param = b.param();
    fails("connect again", b.client.drive().connect(client, param, &[], Time::NEVER), Errno::EINVAL)
}

pub(super) fn behaviour_30_the_server_never_reads<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.frozen = Some(Side::Server);
    b.connect(client, &[])?;
    takes(b, ASKED_TO_WAIT, |b| b.expect(Side::Client, client, CmEvent::Unreachable, TIMED_OUT, pdl::NONE).map(drop))?;
    b.frozen = None;
    let server = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    b.accept(server, &[])?;
    takes(b, SENT_IN_VAIN, |b| b.expect(Side::Server, server, CmEvent::Unreachable, TIMED_OUT, pdl::NONE).map(drop))
}

/// Half open: the client considers the connection established, but the server has given it up.
pub(super) fn behaviour_31_the_client_never_reads_the_answer<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.frozen = Some(Side::Client);
    b.accept(server, &[])?;
    takes(b, ASKED_TO_WAIT, |b| b.expect(Side::Server, server, CmEvent::Unreachable, TIMED_OUT, pdl::NONE).map(drop))?;
    b.frozen = None;
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.quiet(Side::Client)?;
    b.client.drive().establish(client)?;
    b.quiet(Side::Server)
}

pub(super) fn behaviour_32_a_disconnect_is_never_answered<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.connected()?;
    b.client.drive().disconnect(client, Time::NEVER)?;
    b.expect(Side::Server, server, CmEvent::Disconnected, 0, pdl::NONE)?;
    takes(b, SENT_IN_VAIN, |b| b.expect(Side::Client, client, CmEvent::Disconnected, TIMED_OUT, pdl::NONE).map(drop))?;
    b.expect(Side::Client, client, CmEvent::TimewaitExit, 0, pdl::NONE).map(drop)
}

pub(super) fn behaviour_33_a_full_backlog_makes_clients_wait<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen_in(PortSpace::Tcp, 1)?;
    let clients = [b.resolved()?, b.resolved()?, b.resolved()?];
    b.frozen = Some(Side::Server);
    for client in clients {
        b.connect(client, &[])?;
        std::thread::sleep(b.env.quiet());
    }
    b.frozen = None;
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    b.quiet(Side::Server)?;
    // Long enough for a retransmission of the second request, and for another rejection of the third because of it.
    b.frozen = Some(Side::Server);
    std::thread::sleep(Duration::from_millis(6500));
    b.frozen = None;
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    b.quiet(Side::Server)?;
    b.be_patient(Duration::from_secs(15));
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    b.quiet(Side::Client)
}
