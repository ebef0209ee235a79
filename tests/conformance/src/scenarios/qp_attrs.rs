//! The attributes of a connected QP, and the time that they cost.

use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{EndOf, Side};
use cmid_harness::{Check, Env, Failure, Fixture, test_caps};
use cmid_proto::datapath::{
    AckTimeout, MemoryRegion, ModifyError, ModifyReason, QpAttr, QpAttrs, QpState, QueuePair, RnrTimer, SendWr,
    WcStatus,
};
use cmid_proto::memory::Access;
use cmid_proto::{CmEvent, ConnParam, Time};

use super::data_path::Link;
use super::memory::{deregister, register};

const LATE: Duration = Duration::from_millis(5);
/// Less than the kernel's timer of 655 ms, and more than a short one takes on a slow machine.
const LONG: Duration = Duration::from_millis(600);

fn reason(modified: Result<(), ModifyError>) -> Result<(), ModifyReason> {
    modified.map_err(|error| error.reason)
}

const fn timer(min_rnr_timer: RnrTimer) -> QpAttrs {
    QpAttrs { min_rnr_timer: Some(min_rnr_timer), timeout: None, retry_count: None, rnr_retry: None }
}

/// Returns the time that a message takes whose receive is posted late.
fn of_a_late_receive<L: Env>(b: &mut Fixture<'_, L>, link: &mut Link<L>) -> Check<Duration> {
    let ((client, server), (mr, to)) = ((&mut link.ends.0, &mut link.ends.1), (&link.mrs.0, &link.mrs.1));
    let begun = Instant::now();
    client.qp.post_send(SendWr::send(1, mr.sge(0..8)))?;
    thread::sleep(LATE);
    server.qp.post_recv(2, to.sge(0..8))?;
    b.ends(server, 2, WcStatus::SUCCESS)?;
    let taken = begun.elapsed();
    b.ends(client, 1, WcStatus::SUCCESS)?;
    Ok(taken)
}

pub(super) fn a_receive_that_is_posted_late_costs_the_timer_of_the_receiver<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let param = ConnParam { rnr_retry_count: 7, ..b.param() };
    let mut link = Link::open_by(b, test_caps(), param)?;
    let taken = of_a_late_receive(b, &mut link)?;
    ensure(taken >= LONG, || format!("{taken:?} with the kernel's timer"))?;
    let short = RnrTimer::at_least(Duration::from_millis(1));
    same("a short timer", reason(link.ends.1.qp.modify(timer(short))), Ok(()))?;
    same("what it has", link.ends.1.qp.attrs()?.min_rnr_timer, Some(short))?;
    let taken = of_a_late_receive(b, &mut link)?;
    ensure(taken < LONG, || format!("{taken:?} with {short:?}"))?;
    let chosen = QpAttrs { timeout: Some(AckTimeout::NEVER), ..timer(RnrTimer::LONGEST) };
    let late = ModifyReason::TooLate(QpAttr::Timeout, QpState::RTS);
    same("a time-out in RTS", reason(link.ends.1.qp.modify(chosen)), Err(late))?;
    same("and nothing else", link.ends.1.qp.attrs()?.min_rnr_timer, Some(short))?;
    let server = &mut link.ends.1;
    b.server.drive().disconnect(server.id, Time::NEVER)?;
    same("after the end", reason(server.qp.modify(timer(short))), Err(ModifyReason::Ended(QpState::ERR)))?;
    link.close(b)
}

pub(super) fn attributes_are_chosen_before_the_connect_and_the_accept<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let short = RnrTimer::at_least(Duration::from_millis(1));
    let chosen = QpAttrs {
        min_rnr_timer: Some(short),
        timeout: AckTimeout::of_code(15),
        retry_count: Some(3),
        rnr_retry: Some(0),
    };
    let many = QpAttrs { retry_count: Some(8), ..chosen };
    let too_large = ModifyReason::TooLarge { attr: QpAttr::RetryCount, asked: 8, max: 7 };
    let mut by_library = [false; 2];
    let mut choose = |end: &mut EndOf<L>, side: usize| -> Check {
        same("too many retries", reason(end.qp.modify(many)), Err(too_large))?;
        match reason(end.qp.modify(chosen)) {
            Ok(()) => {}
            // librdmacm sets them itself.
            Err(ModifyReason::ByLibrary(QpState::INIT)) => by_library[side] = true,
            Err(other) => return Err(Failure(other.to_string())),
        }
        Ok(())
    };
    // They come before the parameters.
    let param = ConnParam { rnr_retry_count: 7, retry_count: 6, ..b.param() };
    let client_id = b.resolved()?;
    let mut client = b.end(Side::Client, client_id, &pds.0, test_caps())?;
    choose(&mut client, 0)?;
    b.client.drive().connect(client_id, param, &[], Time::NEVER)?;
    let server_id = b.expect_any(Side::Server, CmEvent::ConnectRequest)?.id;
    let mut server = b.end(Side::Server, server_id, &pds.1, test_caps())?;
    choose(&mut server, 1)?;
    b.server.drive().accept(server_id, param, &[], Time::NEVER)?;
    b.expect_any(Side::Client, CmEvent::Established)?;
    b.expect_any(Side::Server, CmEvent::Established)?;
    same("both sides", by_library[0], by_library[1])?;
    if !by_library[0] {
        same("the client's", client.qp.attrs()?, chosen)?;
        same("the server's", server.qp.attrs()?, chosen)?;
        let mr = register(&pds.0, vec![1; 8], Access::empty())?;
        client.qp.post_send(SendWr::send(1, mr.sge(0..8)))?;
        b.ends(&mut client, 1, WcStatus::RNR_RETRY_EXC_ERR)?;
        deregister(mr)?;
    }
    b.part((client, server))
}
