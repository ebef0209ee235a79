//! Messages of the connection manager are lost: the first one, or all of them.

use std::time::Duration;

use cmid_harness::{Check, Env, Side};
use cmid_proto::{CmEvent, EventKind, IdKey, PortSpace, Time};

use super::faults;
use crate::Expected::{Always, OneOf};
use crate::filter::{Loss, Message};
use crate::fixture::{AT_ONCE, SOON, STANDS, in_brief};
use crate::{FaultFixture, Phase};

/// The time after which the kernel retransmits, in seconds: 4.6, on Linux 6.1 6.1.
const RESENT: std::ops::RangeInclusive<u64> = 3..=24;
/// The time after which the kernel gives up, in seconds: sixteen transmissions.
const GIVEN_UP: std::ops::RangeInclusive<u64> = 55..=124;
/// How long to wait for the loss of a message that is only sent as an answer to a retransmitted one.
const PROVOKED: Duration = Duration::from_secs(15);

faults! { "Messages of the connection manager are lost";
    req_once [Epoll Fast 60] "the first REQ" => [
        Always(&[
            "it is lost", "server: CONNECT_REQUEST, after 3 to 25 s", "server: accept: ok",
            "client: CONNECT_RESPONSE", "server: ESTABLISHED",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Req)?;
        s.b.listen()?;
        let client = s.b.resolved()?;
        s.from_now();
        s.b.connect(client, &[])?;
        once(s, loss)?;
        let server = s.sees_any(Side::Server, RESENT)?;
        stands(s, client, server)
    }
    req_always [All Fast 60] "every REQ" => [
        Always(&["client: DEADLINE_PASSED(connect)", "client: destroy: ok", "all is well again", STANDS]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Req)?;
        s.b.listen()?;
        let client = s.b.resolved()?;
        let (param, deadline) = (s.b.param(), s.patience(Side::Client));
        s.b.client.drive().connect(client, param, &[], deadline)?;
        s.aftermath()?;
        // Otherwise the client retransmits once messages arrive again.
        gives_up(s, Side::Client, client)?;
        always(s, loss)
    }
    mra_once [Epoll Fast 60] "the first MRA, while the server takes its time" => [
        Always(&["it is lost", "server: accept: ok", "client: CONNECT_RESPONSE", "server: ESTABLISHED"]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Mra)?;
        let ids = s.reach(Phase::Requested)?;
        loss.wait_for_one(PROVOKED)?;
        once(s, loss)?;
        accepted_late(s, ids.client, ids.server)
    }
    mra_always [Epoll Fast 60] "every MRA, while the server takes its time" => [
        Always(&["server: accept: ok", "client: CONNECT_RESPONSE", "server: ESTABLISHED", "all is well again", STANDS]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Mra)?;
        let ids = s.reach(Phase::Requested)?;
        loss.wait_for(2, 2 * PROVOKED)?;
        accepted_late(s, ids.client, ids.server)?;
        always(s, loss)
    }
    rej_once [Epoll Fast 60] "the first REJ" => [
        Always(&[
            "server: reject: ok", "it is lost", "server: CONNECT_REQUEST, after 3 to 25 s", "server: reject: ok",
            "client: REJECTED (reason 28)",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Rej)?;
        let ids = s.reach(Phase::Requested)?;
        s.from_now();
        rejects(s, ids.server)?;
        once(s, loss)?;
        let again = s.sees_any(Side::Server, RESENT)?;
        rejects(s, Some(again))?;
        s.sees(Side::Client, ids.client, 0..=9).map(drop)
    }
    rej_always [Epoll Fast 60] "every REJ" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: reject: ok", "client: DEADLINE_PASSED(connect)", "all is well again",
            STANDS,
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Rej)?;
        s.b.listen()?;
        let client = s.b.resolved()?;
        let (param, deadline) = (s.b.param(), s.patience(Side::Client));
        s.b.client.drive().connect(client, param, &[], deadline)?;
        let server = s.sees_any(Side::Server, 0..=9)?;
        rejects(s, Some(server))?;
        s.aftermath()?;
        // Otherwise the client retransmits.
        s.b.destroy(Side::Client, client)?;
        always(s, loss)
    }
    rep_once [Epoll Fast 60] "the first REP" => [
        Always(&[
            "server: accept: ok", "it is lost", "client: CONNECT_RESPONSE, after 3 to 25 s", "server: ESTABLISHED",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Rep)?;
        let ids = s.reach(Phase::Requested)?;
        s.from_now();
        accepts(s, ids.server, Time::NEVER)?;
        once(s, loss)?;
        confirmed(s, ids.client, ids.server, RESENT)
    }
    rep_always [All Fast 60] "every REP" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: accept: ok", "client: DEADLINE_PASSED(connect)",
            "server: DEADLINE_PASSED(accept)", "client: destroy: ok", "all is well again", STANDS,
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Rep)?;
        s.b.listen()?;
        let client = s.b.resolved()?;
        let (param, deadline) = (s.b.param(), s.patience(Side::Client));
        s.b.client.drive().connect(client, param, &[], deadline)?;
        let server = s.sees_any(Side::Server, 0..=9)?;
        let deadline = s.patience(Side::Server);
        accepts(s, Some(server), deadline)?;
        s.aftermath()?;
        gives_up(s, Side::Client, client)?;
        always(s, loss)
    }
    rep_always_to_the_end [Epoll Slow 300] "every REP, and nobody sets a deadline" => [
        Always(&["server: accept: ok", "server: UNREACHABLE (-ETIMEDOUT), after 55 to 125 s"]),
        // The client may send the REQ again after the server has given up. The kernel takes it for a new request, whose
        // destruction rejects it.
        OneOf(&["a repeated REQ: a new request", "a repeated REQ: none"]),
        OneOf(&["client: UNREACHABLE (-ETIMEDOUT)", "client: REJECTED (reason 28)"]),
        Always(&["all is well again", STANDS]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Rep)?;
        let ids = s.reach(Phase::Requested)?;
        accepts(s, ids.server, Time::NEVER)?;
        let server = ids.server.unwrap_or(ids.client);
        s.sees(Side::Server, server, GIVEN_UP)?;
        let again = s.next(Side::Server, PROVOKED)?;
        s.note(match &again {
            None => "a repeated REQ: none".to_owned(),
            Some(event) if event.kind == EventKind::Cm(CmEvent::ConnectRequest) => {
                "a repeated REQ: a new request".to_owned()
            }
            Some(event) => format!("server: {}", in_brief(event)),
        });
        if let Some(event) = again {
            s.b.destroy(Side::Server, event.id)?;
        }
        s.sees(Side::Client, ids.client, 0..=124)?;
        always(s, loss)
    }
    rtu_once [Epoll Fast 60] "the first RTU" => [Always(&["it is lost", "server: ESTABLISHED, after 3 to 25 s"])] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Rtu)?;
        let ids = s.reach(Phase::Responded)?;
        s.from_now();
        s.b.client.drive().establish(ids.client)?;
        once(s, loss)?;
        let server = ids.server.unwrap_or(ids.client);
        s.sees(Side::Server, server, RESENT).map(drop)
    }
    rtu_once_with_data [All Fast 60] "the RTU; data arrives, and the server says so by notify_established" => [
        Always(&["it is lost", "server: notify_established: ok", "server: ESTABLISHED"]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Rtu)?;
        let ids = s.reach(Phase::Responded)?;
        s.b.client.drive().establish(ids.client)?;
        // The filter stands until the server has said so: a repeated RTU must not come first.
        s.note(loss.wait_for_one(SOON).map(|()| "it is lost")?);
        let server = ids.server.unwrap_or(ids.client);
        let said = s.b.server.drive().notify_established(server);
        s.tries("server: notify_established", said);
        loss.lift()?;
        s.sees(Side::Server, server, 0..=2).map(drop)
    }
    rtu_always [All Fast 60] "every RTU" => [
        Always(&[
            "server: accept: ok", "client: CONNECT_RESPONSE", "server: DEADLINE_PASSED(accept)",
            "server: destroy: ok", "client: REJECTED (reason 28)", "all is well again", STANDS,
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Rtu)?;
        let ids = s.reach(Phase::Requested)?;
        let (deadline, server) = (s.patience(Side::Server), ids.server.unwrap_or(ids.client));
        accepts(s, ids.server, deadline)?;
        s.sees(Side::Client, ids.client, 0..=9)?;
        s.b.client.drive().establish(ids.client)?;
        s.aftermath()?;
        gives_up(s, Side::Server, server)?;
        always(s, loss)
    }
    rtu_always_to_the_end [Epoll Slow 300] "every RTU, and nobody sets a deadline" => [
        Always(&["server: UNREACHABLE (-ETIMEDOUT), after 55 to 125 s", "all is well again", STANDS]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Rtu)?;
        let ids = s.reach(Phase::Responded)?;
        s.b.client.drive().establish(ids.client)?;
        let server = ids.server.unwrap_or(ids.client);
        s.sees(Side::Server, server, GIVEN_UP)?;
        s.watch(SOON)?;
        always(s, loss)
    }
    dreq_once [Epoll Fast 60] "the first DREQ" => [
        Always(&["it is lost", "server: DISCONNECTED, after 3 to 25 s", "client: DISCONNECTED"]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Dreq)?;
        let ids = s.reach(Phase::Connected)?;
        s.from_now();
        s.b.client.drive().disconnect(ids.client, Time::NEVER)?;
        once(s, loss)?;
        let server = ids.server.unwrap_or(ids.client);
        s.sees(Side::Server, server, RESENT)?;
        s.b.server.drive().disconnect(server, Time::NEVER)?;
        s.sees(Side::Client, ids.client, 0..=9).map(drop)
    }
    dreq_always [All Fast 60] "every DREQ" => [
        Always(&["client: DEADLINE_PASSED(disconnect)", "client: destroy: ok", "all is well again", STANDS]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::Dreq)?;
        let ids = s.reach(Phase::Connected)?;
        let deadline = s.patience(Side::Client);
        s.b.client.drive().disconnect(ids.client, deadline)?;
        s.aftermath()?;
        gives_up(s, Side::Client, ids.client)?;
        always(s, loss)
    }
    drep_once [Epoll Fast 60] "the first DREP; the server then destroys its id" => [
        Always(&["it is lost", "client: DISCONNECTED, after 3 to 25 s"]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Drep)?;
        let ids = s.reach(Phase::Disconnecting)?;
        let server = ids.server.unwrap_or(ids.client);
        s.from_now();
        s.b.server.drive().disconnect(server, Time::NEVER)?;
        once(s, loss)?;
        // The kernel answers a DREQ for an id that it does not know.
        s.b.destroy(Side::Server, server)?;
        s.sees(Side::Client, ids.client, RESENT).map(drop)
    }
    drep_once_and_the_id_is_kept [Epoll Slow 300] "the first DREP; the server keeps its id" => [
        Always(&["it is lost", "server: TIMEWAIT_EXIT", "client: DISCONNECTED (-ETIMEDOUT), after 55 to 125 s"]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Drep)?;
        let ids = s.reach(Phase::Disconnecting)?;
        let server = ids.server.unwrap_or(ids.client);
        s.b.server.drive().disconnect(server, Time::NEVER)?;
        once(s, loss)?;
        s.sees(Side::Server, server, 0..=9)?;
        s.sees(Side::Client, ids.client, GIVEN_UP).map(drop)
    }
    drep_always [All Fast 60] "every DREP" => [
        Always(&[
            "server: DISCONNECTED", "client: DEADLINE_PASSED(disconnect)", "server: TIMEWAIT_EXIT",
            "all is well again", STANDS,
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Drep)?;
        let ids = s.reach(Phase::Connected)?;
        let (deadline, server) = (s.patience(Side::Client), ids.server.unwrap_or(ids.client));
        s.b.client.drive().disconnect(ids.client, deadline)?;
        s.sees(Side::Server, server, 0..=9)?;
        s.b.server.drive().disconnect(server, Time::NEVER)?;
        s.aftermath()?;
        always(s, loss)
    }
    drep_always_in_a_teardown [All Fast 60] "every DREP, while the client tears down" => [
        Always(&[
            "server: DISCONNECTED", "client: DEADLINE_PASSED(teardown)", "server: TIMEWAIT_EXIT", "client: closed",
            "all is well again", STANDS,
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::Drep)?;
        let ids = s.reach(Phase::Connected)?;
        let (deadline, server) = (s.patience(Side::Client), ids.server.unwrap_or(ids.client));
        s.b.client.drive().teardown(ids.client, deadline)?;
        s.sees(Side::Server, server, 0..=9)?;
        s.b.server.drive().disconnect(server, Time::NEVER)?;
        s.aftermath()?;
        let state = s.b.client.drive().core().state(ids.client);
        s.note(format!("client: {}", state.map_or("gone".to_owned(), |state| state.to_string())));
        always(s, loss)
    }
    sidr_req_once [Epoll Fast 60] "the first lookup of datagrams (SIDR_REQ)" => [
        Always(&[
            "it is lost", "server: CONNECT_REQUEST, after 3 to 25 s", "server: accept: ok", "client: ESTABLISHED",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Server, Message::SidrReq)?;
        let client = ready_for_lookup(s)?;
        s.from_now();
        s.b.connect(client, &[])?;
        once(s, loss)?;
        let server = s.sees_any(Side::Server, RESENT)?;
        accepts(s, Some(server), Time::NEVER)?;
        s.sees(Side::Client, client, 0..=9).map(drop)
    }
    sidr_rep_once [Epoll Fast 60] "the first answer to a lookup (SIDR_REP)" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: accept: ok", "it is lost", "server: CONNECT_REQUEST, after 3 to 25 s",
            "server: accept: ok", "client: ESTABLISHED",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::SidrRep)?;
        let client = ready_for_lookup(s)?;
        s.b.connect(client, &[])?;
        let server = s.sees_any(Side::Server, 0..=9)?;
        s.from_now();
        accepts(s, Some(server), Time::NEVER)?;
        once(s, loss)?;
        // The kernel does not remember its answer: it treats the retransmitted lookup as a new one.
        let again = s.sees_any(Side::Server, RESENT)?;
        accepts(s, Some(again), Time::NEVER)?;
        s.sees(Side::Client, client, 0..=9).map(drop)
    }
    sidr_rep_always [All Fast 60] "every answer to a lookup (SIDR_REP)" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: accept: ok", "client: DEADLINE_PASSED(connect)",
            "server: CONNECT_REQUEST", "client: destroy: ok",
        ]),
    ] |s| {
        let loss = Loss::begin(s.link, Side::Client, Message::SidrRep)?;
        let client = ready_for_lookup(s)?;
        let (param, deadline) = (s.b.param(), s.patience(Side::Client));
        s.b.client.drive().connect(client, param, &[], deadline)?;
        let server = s.sees_any(Side::Server, 0..=9)?;
        accepts(s, Some(server), Time::NEVER)?;
        // It stays until a retransmitted lookup arrives, which is a new one to the server.
        s.aftermath()?;
        gives_up(s, Side::Client, client)?;
        loss.lift().map(drop)
    }
}

/// Waits for one loss, then lifts the filter.
fn once<L: Env>(s: &mut FaultFixture<'_, L>, loss: Loss) -> Check {
    loss.wait_for_one(SOON)?;
    loss.lift()?;
    s.note("it is lost");
    Ok(())
}

/// Lifts the filter, and makes a new connection.
fn always<L: Env>(s: &mut FaultFixture<'_, L>, loss: Loss) -> Check {
    loss.lift()?;
    s.note("all is well again");
    s.anew()
}

fn accepts<L: Env>(s: &mut FaultFixture<'_, L>, id: Option<IdKey>, deadline: Time) -> Check {
    if let Some(id) = id {
        let param = s.b.param();
        let result = s.b.server.drive().accept(id, param, &[], deadline);
        s.tries("server: accept", result);
    }
    Ok(())
}

fn rejects<L: Env>(s: &mut FaultFixture<'_, L>, id: Option<IdKey>) -> Check {
    if let Some(id) = id {
        let result = s.b.server.drive().reject(id, &[]);
        s.tries("server: reject", result);
        s.b.destroy(Side::Server, id)?;
    }
    Ok(())
}

fn gives_up<L: Env>(s: &mut FaultFixture<'_, L>, side: Side, id: IdKey) -> Check {
    s.b.destroy(side, id)?;
    let name = s.b.endpoint(side).name;
    s.note(format!("{name}: destroy: ok"));
    s.watch(AT_ONCE)
}

/// Completes a connection after the server has read its request.
fn stands<L: Env>(s: &mut FaultFixture<'_, L>, client: IdKey, server: IdKey) -> Check {
    accepts(s, Some(server), Time::NEVER)?;
    confirmed(s, client, Some(server), 0..=9)
}

fn confirmed<L: Env>(
    s: &mut FaultFixture<'_, L>,
    client: IdKey,
    server: Option<IdKey>,
    seconds: std::ops::RangeInclusive<u64>,
) -> Check {
    s.sees(Side::Client, client, seconds)?;
    s.b.client.drive().establish(client)?;
    s.sees(Side::Server, server.unwrap_or(client), 0..=9).map(drop)
}

fn accepted_late<L: Env>(s: &mut FaultFixture<'_, L>, client: IdKey, server: Option<IdKey>) -> Check {
    accepts(s, server, Time::NEVER)?;
    confirmed(s, client, server, 0..=9)
}

/// Makes a listening server and a datagram id that is ready to look it up.
fn ready_for_lookup<L: Env>(s: &mut FaultFixture<'_, L>) -> Check<IdKey> {
    s.b.listen_in(PortSpace::Udp, 10)?;
    let there = s.b.address;
    s.b.resolved_in(PortSpace::Udp, there)
}
