//! The peer is a process, and is killed with SIGKILL.

use cmid_harness::{Check, Env, Side};
use cmid_proto::Time;

use super::faults;
use crate::Expected::{Always, OneOf};
use crate::fixture::{AT_ONCE, STANDS};
use crate::peer::{Killed, Peer, Role, expect_line};
use crate::{FaultFixture, Phase};

faults! { "The peer is killed (SIGKILL)";
    client_killed_while_bound [Epoll Fast 60] "a client that has bound an id" => [
        Always(&["it is killed", STANDS]),
    ] |s| { client(s, Phase::Bound) }
    client_killed_with_the_address_resolved [Epoll Fast 60] "a client that has resolved the address" => [
        Always(&["it is killed", STANDS]),
    ] |s| { client(s, Phase::AddrResolved) }
    client_killed_with_the_route_resolved [Epoll Fast 60] "a client that has resolved the route" => [
        Always(&["it is killed", STANDS]),
    ] |s| { client(s, Phase::RouteResolved) }
    client_killed_with_its_request_unread [Epoll Fast 60] "a client whose request is unread" => [
        Always(&["it is killed", "server: CONNECT_REQUEST", "server: accept: EINVAL", STANDS]),
    ] |s| { client(s, Phase::Unread) }
    client_killed_with_its_request_read [All Fast 60] "a client whose request is read and not answered" => [
        Always(&["server: CONNECT_REQUEST", "it is killed", "server: accept: EINVAL", STANDS]),
    ] |s| { client(s, Phase::Requested) }
    client_killed_with_the_answer_unread [Epoll Fast 60] "a client that has not read the answer" => [
        Always(&["server: CONNECT_REQUEST", "it is killed"]),
        OneOf(&["server: REJECTED (reason 28)", "server: REJECTED (reason 4)"]),
        Always(&["server: disconnect: ok", STANDS]),
    ] |s| { client(s, Phase::Accepted) }
    client_killed_with_the_answer_read [Epoll Fast 60] "a client that has not confirmed the answer" => [
        Always(&[
            "server: CONNECT_REQUEST", "it is killed", "server: REJECTED (reason 28)", "server: disconnect: ok",
            STANDS,
        ]),
    ] |s| { client(s, Phase::Responded) }
    client_killed_while_connected [All Fast 60] "a client that is connected" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: ESTABLISHED", "it is killed", "server: DISCONNECTED",
            "server: disconnect: ok", "server: TIMEWAIT_EXIT", STANDS,
        ]),
    ] |s| { client(s, Phase::Connected) }
    client_killed_while_disconnecting [Epoll Fast 60] "a client that has disconnected" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: ESTABLISHED", "it is killed", "server: DISCONNECTED",
            "server: disconnect: ok", "server: TIMEWAIT_EXIT", STANDS,
        ]),
    ] |s| { client(s, Phase::Disconnecting) }
    client_killed_after_a_migration [Epoll Fast 60] "a client with an event pending, migrated" => [
        Always(&[
            "server: CONNECT_REQUEST", "server: ESTABLISHED", "it is killed", "server: DISCONNECTED, TIMEWAIT_EXIT",
            "server: disconnect: ok", STANDS,
        ]),
    ] |s| {
        client_in(s, Killed { role: Role::Client, phase: Phase::Connected, migrated: true })
    }
    server_killed_while_listening [Epoll Fast 60] "a server that listens" => [
        Always(&["it is killed", "client: REJECTED (reason 8)", "client: disconnect: ok", STANDS]),
    ] |s| { server(s, Phase::Bound) }
    server_killed_with_a_request_unread [All Fast 60] "a server that has not read the request" => [
        Always(&["it is killed", "client: REJECTED (reason 28)", "client: disconnect: ok", STANDS]),
    ] |s| { server(s, Phase::Unread) }
    server_killed_with_a_request_migrated [Epoll Fast 60] "a server that has not read the request, its listener migrated with it" => [
        Always(&["it is killed", "client: REJECTED (reason 28)", "client: disconnect: ok", STANDS]),
    ] |s| {
        server_in(s, Killed { role: Role::Server, phase: Phase::Unread, migrated: true })
    }
    server_killed_with_a_request_read [Epoll Fast 60] "a server that has read the request and not answered" => [
        Always(&["it is killed", "client: REJECTED (reason 28)", "client: disconnect: ok", STANDS]),
    ] |s| { server(s, Phase::Requested) }
    server_killed_with_its_answer_unread [Epoll Fast 60] "a server whose answer is unread" => [
        Always(&["it is killed", "client: CONNECT_RESPONSE, REJECTED (reason 28)", "client: disconnect: ok", STANDS]),
    ] |s| { server(s, Phase::Accepted) }
    server_killed_with_its_answer_read [Epoll Fast 60] "a server whose answer is not confirmed" => [
        Always(&[
            "client: CONNECT_RESPONSE", "it is killed", "client: REJECTED (reason 28)",
            "client: establish: refused, EINVAL", "client: disconnect: ok", STANDS,
        ]),
    ] |s| { server(s, Phase::Responded) }
    server_killed_while_connected [All Fast 60] "a server that is connected" => [
        Always(&[
            "client: CONNECT_RESPONSE", "it is killed", "client: DISCONNECTED", "client: disconnect: ok",
            "client: TIMEWAIT_EXIT", STANDS,
        ]),
    ] |s| { server(s, Phase::Connected) }
    server_killed_while_disconnecting [Epoll Fast 60] "a server that has disconnected" => [
        Always(&[
            "client: CONNECT_RESPONSE", "it is killed", "client: DISCONNECTED", "client: disconnect: ok",
            "client: TIMEWAIT_EXIT", STANDS,
        ]),
    ] |s| { server(s, Phase::Disconnecting) }
    server_killed_after_a_migration [Epoll Fast 60] "a server with an event pending on its connection, migrated" => [
        Always(&[
            "client: CONNECT_RESPONSE", "it is killed", "client: DISCONNECTED, TIMEWAIT_EXIT",
            "client: disconnect: ok", STANDS,
        ]),
    ] |s| {
        server_in(s, Killed { role: Role::Server, phase: Phase::Connected, migrated: true })
    }
}

fn client<L: Env>(s: &mut FaultFixture<'_, L>, phase: Phase) -> Check {
    client_in(s, Killed { role: Role::Client, phase, migrated: false })
}

fn server<L: Env>(s: &mut FaultFixture<'_, L>, phase: Phase) -> Check {
    server_in(s, Killed { role: Role::Server, phase, migrated: false })
}

/// The client is the killed process; this process is the server.
fn client_in<L: Env>(s: &mut FaultFixture<'_, L>, killed: Killed) -> Check {
    s.b.listen()?;
    let port = s.b.address.port();
    let (peer, says) = Peer::start(s.link, port, killed)?;
    let phase = killed.phase;
    let asks = !matches!(phase, Phase::Bound | Phase::AddrResolved | Phase::RouteResolved);
    let mut id = None;
    if asks && phase != Phase::Unread {
        id = Some(s.sees_any(Side::Server, 0..=25)?);
    }
    if let (Some(id), false) = (id, phase == Phase::Requested) {
        s.b.accept(id, &[])?;
        if matches!(phase, Phase::Connected | Phase::Disconnecting) {
            s.sees(Side::Server, id, 0..=9)?;
        }
        if phase == Phase::Accepted {
            std::thread::sleep(AT_ONCE);
        }
        if killed.migrated {
            expect_line(&says, "connected")?;
            s.b.server.drive().disconnect(id, Time::NEVER)?;
        }
    }
    expect_line(&says, "there")?;
    if phase == Phase::Unread {
        std::thread::sleep(AT_ONCE);
    }
    peer.kill()?;
    s.note("it is killed");
    if phase == Phase::Unread {
        std::thread::sleep(AT_ONCE);
        id = Some(s.sees_any(Side::Server, 0..=9)?);
    } else {
        s.watch(2 * AT_ONCE)?;
    }
    if let Some(id) = id {
        if matches!(phase, Phase::Unread | Phase::Requested) {
            let (param, deadline) = (s.b.param(), s.patience(Side::Server));
            let result = s.b.server.drive().accept(id, param, &[], deadline);
            s.tries("server: accept", result);
        } else {
            let deadline = s.patience(Side::Server);
            let result = s.b.server.drive().disconnect(id, deadline);
            s.tries("server: disconnect", result);
        }
        s.aftermath()?;
    }
    s.anew()
}

/// The server is the killed process; this process is the client.
fn server_in<L: Env>(s: &mut FaultFixture<'_, L>, killed: Killed) -> Check {
    let port = s.b.address.port();
    let (peer, says) = Peer::start(s.link, port, killed)?;
    let phase = killed.phase;
    if phase == Phase::Bound {
        expect_line(&says, "there")?;
    } else {
        expect_line(&says, "listening")?;
    }
    let id = s.b.resolved()?;
    if phase != Phase::Bound {
        s.b.connect(id, &[])?;
    }
    match phase {
        Phase::Accepted => {
            s.b.frozen = Some(Side::Client);
            expect_line(&says, "there")?;
            std::thread::sleep(AT_ONCE);
        }
        Phase::Responded => {
            s.sees(Side::Client, id, 0..=9)?;
            expect_line(&says, "there")?;
        }
        Phase::Connected | Phase::Disconnecting => {
            s.sees(Side::Client, id, 0..=9)?;
            s.b.client.drive().establish(id)?;
            if killed.migrated {
                expect_line(&says, "connected")?;
                s.b.client.drive().disconnect(id, Time::NEVER)?;
            }
            expect_line(&says, "there")?;
            if phase == Phase::Disconnecting {
                std::thread::sleep(AT_ONCE);
            }
        }
        Phase::Unread | Phase::Requested => expect_line(&says, "there")?,
        Phase::Bound | Phase::AddrResolved | Phase::RouteResolved => {}
    }
    peer.kill()?;
    s.note("it is killed");
    std::thread::sleep(AT_ONCE);
    s.b.frozen = None;
    if phase == Phase::Bound {
        s.b.connect(id, &[])?;
    }
    s.watch(2 * AT_ONCE)?;
    let deadline = s.patience(Side::Client);
    if phase == Phase::Responded {
        let result = s.b.client.drive().establish(id);
        s.tries("client: establish", result);
    }
    let result = s.b.client.drive().disconnect(id, deadline);
    s.tries("client: disconnect", result);
    s.aftermath()?;
    s.anew()
}
