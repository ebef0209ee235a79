//! Behaviours 17, 19 and 20: three requests after which the kernel cannot destroy the id for about 70 seconds,
//! because it still retransmits a message of the id (`cm_send_rej_locked`, `cm_destroy_id`). The core refuses them
//! (wrong_state.rs). Calls past the core show what the kernel does.

use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{Side, pdl};
use cmid_harness::{Check, Env, Fixture};
use cmid_proto::{Call, CmEvent, Errno, IdKey, RejectReason};

const REJECT: RejectReason = RejectReason::Consumer;

pub(super) fn behaviour_17_what_a_second_accept_does<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.requested()?;
    b.accept(server, &[])?;
    let again = Call::Accept { id: server, param: b.param() };
    same("accept again", b.server.bare(&again, &[]), Err(Errno::EINVAL))?;
    b.expect(Side::Client, client, CmEvent::ConnectResponse, 0, pdl::RESPONSE)?;
    b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    b.quiet(Side::Server)?;
    destroy_takes_a_minute(b, Side::Server, server)
}

pub(super) fn behaviour_19_what_a_reject_before_the_answer_does<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let client = b.resolved()?;
    b.connect(client, &[])?;
    same("reject", b.client.bare(&Call::Reject { id: client, reason: REJECT }, &[]), Ok(()))?;
    b.quiet(Side::Client)?;
    b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
    destroy_takes_a_minute(b, Side::Client, client)
}

pub(super) fn behaviour_20_what_a_reject_after_the_answer_does<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let (client, server) = b.responded()?;
    same("reject", b.server.bare(&Call::Reject { id: server, reason: REJECT }, b"late"), Ok(()))?;
    let event = b.expect(Side::Client, client, CmEvent::Rejected, 28, pdl::REJECTED)?;
    same("the reason", &event.private_data[..5], b"late\0")?;
    same("establish", b.client.bare(&Call::Establish { id: client }, &[]), Err(Errno::EINVAL))?;
    destroy_takes_a_minute(b, Side::Server, server)
}

fn destroy_takes_a_minute<L: Env>(b: &mut Fixture<'_, L>, side: Side, id: IdKey) -> Check {
    let begun = Instant::now();
    b.destroy(side, id)?;
    let took = begun.elapsed();
    let expected = Duration::from_secs(60)..Duration::from_secs(110);
    ensure(expected.contains(&took), || format!("destroy took {took:?}, expected {expected:?}"))
}
