//! A network that loses, delays, duplicates and reorders packets (tc-netem(8)): those of the connection manager and
//! data.

use std::time::{Duration, Instant};

use cmid_harness::fixture::PdOf;
use cmid_harness::{Check, Env, Failure, Side, TestMr, TestPd};
use cmid_proto::datapath::{SendWr, WcStatus, prelude::*};
use cmid_proto::memory::Access;
use cmid_proto::{CmEvent, Time};

use super::faults;
use crate::Expected::{self, Always};
use crate::FaultFixture;
use crate::fixture::{SOON, STANDS};

/// Messages in one direction.
const MESSAGES: usize = 6;
const LEN: usize = 2048;

/// A connection from its request to its end.
const WHOLE_LIFE: Expected = Always(&[
    "server: CONNECT_REQUEST",
    "client: CONNECT_RESPONSE",
    "server: ESTABLISHED",
    "server: DISCONNECTED",
    "client: DISCONNECTED",
    "client: TIMEWAIT_EXIT",
    "server: TIMEWAIT_EXIT",
]);

faults! { "The network loses, delays, repeats or reorders packets";
    everything_lost_while_connected [Epoll Fast 90] "everything is lost while a connection stands, with a send under way" => [
        Always(&[
            "client: the send fails, retries exceeded", "client: disconnect: ok",
            "client: DEADLINE_PASSED(disconnect)", "all is well again", STANDS,
        ]),
    ] |s| {
        let (pd, channel) = (s.b.pd(Side::Client)?, s.b.client.channel);
        s.b.listen()?;
        let other = s.b.pd(Side::Server)?;
        let (mut client, server) = s.b.join(&pd, &other)?;
        let mr = pd.register_vec(vec![1; LEN], Access::LOCAL_WRITE)?;
        s.link.disturb("loss 100%")?;
        client.qp.post_send(SendWr::send(1, mr.sge(0..LEN)))?;
        let (begun, limit) = (Instant::now(), Duration::from_secs(60));
        let done = loop {
            if let Some(done) = client.cq.poll_one()? {
                break done;
            }
            if begun.elapsed() > limit {
                return Err(Failure(format!("no completion in {limit:?}")));
            }
            s.b.pump(Duration::from_millis(25))?;
        };
        let failed = done.status == WcStatus::RETRY_EXC_ERR;
        s.note(if failed {
            "client: the send fails, retries exceeded".to_owned()
        } else {
            format!("client: the send ends with {}", done.status)
        });
        if let Some(event) = s.b.client.drive().next_event(channel) {
            s.note(format!("client: {}", crate::fixture::in_brief(&event)));
        }
        let deadline = s.patience(Side::Client);
        let result = s.b.client.drive().disconnect(client.id, deadline);
        s.tries("client: disconnect", result);
        s.aftermath()?;
        s.dropped()?;
        s.link.calm()?;
        s.b.part((client, server))?;
        mr.deregister_vec()?;
        for pd in [pd, other] {
            pd.dealloc()?;
        }
        s.note("all is well again");
        s.anew()
    }
    some_lost [Epoll Fast 120] "every fifth packet is lost, at random; eight connections at once" => [
        Always(&["all connections stand; no other event"]),
    ] |s| {
        s.b.listen()?;
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(s.b.resolved()?);
        }
        s.link.disturb("loss 20%")?;
        for client in &clients {
            s.b.connect(*client, &[])?;
        }
        s.all_stand(&clients, Duration::from_secs(80))?;
        s.dropped()?;
        s.link.calm()
    }
    delayed [Epoll Fast 60] "every packet arrives 300 ms late" => [
        WHOLE_LIFE,
    ] |s| {
        s.link.disturb("delay 300ms")?;
        whole_life(s)
    }
    delayed_beyond_a_retry [Epoll Fast 120] "every packet arrives 7 s late, when it has been sent again already" => [
        WHOLE_LIFE,
    ] |s| {
        s.link.disturb("delay 7s")?;
        whole_life(s)
    }
    repeated [Epoll Fast 60] "every packet arrives twice" => [
        WHOLE_LIFE,
        Always(&["messages: each once, in order, whole"]),
    ] |s| {
        s.link.disturb("duplicate 100%")?;
        whole_life(s)?;
        data(s)
    }
    reordered [Epoll Fast 60] "half of the packets overtake others" => [
        WHOLE_LIFE,
        Always(&["messages: each once, in order, whole"]),
    ] |s| {
        s.link.disturb("delay 40ms reorder 50%")?;
        whole_life(s)?;
        data(s)
    }
    damaged [Epoll Fast 90] "every third packet is damaged" => [Always(&["all connections stand; no other event"])] |s| {
        s.b.listen()?;
        s.link.disturb("corrupt 33%")?;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = s.b.resolved()?;
            s.b.connect(client, &[])?;
            clients.push(client);
        }
        s.all_stand(&clients, Duration::from_secs(80))?;
        s.link.calm()
    }
}

impl<L: Env> FaultFixture<'_, L> {
    /// Fails unless netem has dropped a packet.
    fn dropped(&mut self) -> Check {
        if self.link.dropped()? == 0 { Err(Failure("no packet was lost".into())) } else { Ok(()) }
    }

    /// Waits until all these clients are connected. Fails at the time limit or on any other event.
    fn all_stand(&mut self, clients: &[cmid_proto::IdKey], at_most: Duration) -> Check {
        let (end, channels) = (Instant::now() + at_most, [self.b.client.channel, self.b.server.channel]);
        let (mut confirmed, mut established) = (0, 0);
        while confirmed < clients.len() || established < clients.len() {
            if Instant::now() > end {
                return Err(Failure(format!("{confirmed} answered, {established} established in {at_most:?}")));
            }
            while let Some(event) = self.b.client.drive().next_event(channels[0]) {
                match event.cm() {
                    Some(CmEvent::ConnectResponse) => self.b.client.drive().establish(event.id)?,
                    _ => return Err(Failure(format!("client: {}", crate::fixture::in_brief(&event)))),
                }
                confirmed += 1;
            }
            while let Some(event) = self.b.server.drive().next_event(channels[1]) {
                match event.cm() {
                    Some(CmEvent::ConnectRequest) => self.b.accept(event.id, &[])?,
                    Some(CmEvent::Established) => established += 1,
                    _ => return Err(Failure(format!("server: {}", crate::fixture::in_brief(&event)))),
                }
            }
            self.b.pump(Duration::from_millis(25))?;
        }
        self.note("all connections stand; no other event");
        Ok(())
    }
}

/// A connection from its first step to its end. Each event occurs once.
fn whole_life<L: Env>(s: &mut FaultFixture<'_, L>) -> Check {
    let seconds = 0..=25;
    s.b.listen()?;
    let client = s.b.resolved()?;
    s.b.connect(client, &[])?;
    let server = s.sees_any(Side::Server, seconds.clone())?;
    s.b.accept(server, &[])?;
    s.sees(Side::Client, client, seconds.clone())?;
    s.b.client.drive().establish(client)?;
    s.sees(Side::Server, server, seconds.clone())?;
    s.b.client.drive().disconnect(client, Time::NEVER)?;
    s.sees(Side::Server, server, seconds.clone())?;
    s.b.server.drive().disconnect(server, Time::NEVER)?;
    s.sees(Side::Client, client, seconds.clone())?;
    for (side, id) in [(Side::Client, client), (Side::Server, server)] {
        s.sees(side, id, seconds.clone())?;
    }
    s.watch(SOON / 4)
}

/// Sends messages. They arrive once, in order and complete.
fn data<L: Env>(s: &mut FaultFixture<'_, L>) -> Check {
    let (client_pd, server_pd) = (s.b.pd(Side::Client)?, s.b.pd(Side::Server)?);
    let register = |pd: &PdOf<L>, bytes: Vec<u8>| pd.register_vec(bytes, Access::LOCAL_WRITE);
    let from = register(&client_pd, (0..LEN).map(|at| (at / (LEN / MESSAGES)) as u8).collect())?;
    let to = register(&server_pd, vec![0xff; LEN])?;
    let (mut client, mut server) = s.b.join(&client_pd, &server_pd)?;
    let part = |n: usize| n * (LEN / MESSAGES)..(n + 1) * (LEN / MESSAGES);
    for n in 0..MESSAGES {
        server.qp.post_recv(n as u64, to.sge(part(n)))?;
    }
    for n in 0..MESSAGES {
        client.qp.post_send(SendWr::send(n as u64, from.sge(part(n))))?;
    }
    for n in 0..MESSAGES as u64 {
        s.b.ends(&mut server, n, WcStatus::SUCCESS)?;
        s.b.ends(&mut client, n, WcStatus::SUCCESS)?;
    }
    let mut bytes = vec![0; part(MESSAGES - 1).end];
    to.read(0, &mut bytes)?;
    let whole = (0..MESSAGES).all(|n| bytes[part(n)].iter().all(|byte| usize::from(*byte) == n));
    s.b.part((client, server))?;
    for mr in [from, to] {
        mr.deregister_vec()?;
    }
    s.note(if whole { "messages: each once, in order, whole" } else { "messages: damaged" });
    s.link.calm()
}
