//! Shared receive queues.

use std::thread;
use std::time::{Duration, Instant};

use cmid_harness::failure::{ensure, same, stopped, why};
use cmid_harness::fixture::{DeviceOf, End, EndOf, MrOf, PdOf, SOON, Side, SrqOf, pdl};
use cmid_harness::{Check, Env, Failure, Fixture, TestMr as _, test_caps};
use cmid_proto::datapath::{
    AsyncEvent, AsyncEventKind, AsyncSource, Capacity, Caps, Completion, CreateError, CreateReason, Length, OfPd, Part,
    Parts, PostReason, QpState, SendWr, SrqCaps, WcOpcode, WcStatus, prelude::*,
};
use cmid_proto::memory::{Access, MemoryReason};
use cmid_proto::{CmEvent, Errno, ErrorWith, IdKey, Time};

use super::memory::{contents, deregister, refused, register, used};

type EventsOf<L> = <DeviceOf<L> as DataPath>::AsyncEvents;

const CAPS: SrqCaps = SrqCaps { max_wr: 4, max_sge: 2 };

/// A server with an SRQ, connections whose server QPs use it, and a region on each side.
struct Hall<L: Env> {
    pds: (PdOf<L>, PdOf<L>),
    mrs: (MrOf<L>, MrOf<L>),
    srq: SrqOf<L>,
    ends: Vec<(EndOf<L>, EndOf<L>)>,
}

impl<L: Env> Hall<L> {
    fn open(b: &mut Fixture<'_, L>, connections: usize) -> Check<Self> {
        b.listen()?;
        let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
        let srq = pds.1.create_srq(CAPS)?;
        used("an SRQ", &pds.1, 1)?;
        let mrs = (
            register(&pds.0, (0..64).collect(), Access::LOCAL_WRITE)?,
            register(&pds.1, vec![0; 64], Access::LOCAL_WRITE)?,
        );
        let mut hall = Hall { pds, mrs, srq, ends: Vec::new() };
        for _ in 0..connections {
            hall.connect(b)?;
        }
        Ok(hall)
    }

    fn connect(&mut self, b: &mut Fixture<'_, L>) -> Check {
        self.ends.push(b.join_on_srq(&self.pds.0, &self.pds.1, &self.srq)?);
        Ok(())
    }

    fn receive(&mut self, wr_id: u64) -> Check {
        let at = 8 * wr_id as usize;
        Ok(self.srq.post_recv(wr_id, self.mrs.1.sge(at..at + 8))?)
    }

    /// A client sends a byte: the number of the request.
    fn send(&mut self, from: usize, wr_id: u64) -> Check {
        let at = wr_id as usize;
        Ok(self.ends[from].0.qp.post_send(SendWr::send(wr_id, self.mrs.0.sge(at..at + 1)))?)
    }

    /// It has arrived in this receive.
    fn arrives(&mut self, b: &mut Fixture<'_, L>, from: usize, wr_id: u64, receive: u64) -> Check {
        let (client, server) = &mut self.ends[from];
        let done = b.done(server)?;
        same("a receive", (done.wr_id, done.status, done.opcode), (receive, WcStatus::SUCCESS, WcOpcode::RECV))?;
        same("its QP and length", (done.qp_num, done.byte_len), (server.qp.num(), 1))?;
        same("its byte", contents(&self.mrs.1)?[8 * receive as usize], wr_id as u8)?;
        b.ends(client, wr_id, WcStatus::SUCCESS)
    }

    fn nothing(&mut self, b: &Fixture<'_, L>) -> Check {
        thread::sleep(b.env.quiet());
        for (client, server) in &mut self.ends {
            same("a completion of the client", client.cq.poll_one()?, None)?;
            same("a completion of the server", server.cq.poll_one()?, None)?;
        }
        Ok(())
    }

    fn close(self, b: &mut Fixture<'_, L>) -> Check {
        for ends in self.ends {
            b.part(ends)?;
        }
        drop(self.srq);
        deregister(self.mrs.0)?;
        deregister(self.mrs.1).map(drop)
    }
}

pub(super) fn each_qp_takes_the_next_receive<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 2)?;
    used("an SRQ, two QPs and a region", &hall.pds.1, 4)?;
    let rounded = hall.srq.caps();
    ensure(rounded.max_wr >= 4 && rounded.max_sge >= 2, || format!("{rounded:?}"))?;
    hall.receive(0)?;
    let mr = &hall.mrs.1;
    let rest = (1..4).map(|wr_id| (wr_id, mr.sge(8 * wr_id as usize..8 * wr_id as usize + 8)));
    same("a batch", hall.srq.post_recvs(rest), Ok(3))?;
    same("receives", hall.srq.unpolled(), 4)?;
    let full = PostReason::QueueFull { max: 4 };
    same("one too many", why(hall.srq.post_recv(9, mr.sge(0..8))), Err(full))?;
    let batch = hall.srq.post_recvs([(9, mr.sge(0..8))]);
    same("a batch too many", stopped(batch), Err((0, full)))?;
    for (wr_id, from) in [(10, 1), (11, 0), (12, 0), (13, 1)] {
        hall.send(from, wr_id)?;
        hall.arrives(b, from, wr_id, wr_id - 10)?;
        same("receives", hall.srq.unpolled(), 13 - wr_id as u32)?;
    }
    // Places are free again when completions are polled, in whatever order.
    for round in 0..3 {
        for wr_id in 0..4 {
            hall.receive(wr_id)?;
        }
        for (wr_id, from) in [(20, 0), (21, 1), (22, 0), (23, 1)] {
            hall.send(from, wr_id)?;
            b.ends(&mut hall.ends[from].0, wr_id, WcStatus::SUCCESS)?;
        }
        let server = |from: usize| if round == 1 { 1 - from } else { from };
        for (receive, from) in [(0, 0), (2, 0), (1, 1), (3, 1)] {
            let (at, receive) = if round == 1 { (server(from), receive ^ 1) } else { (from, receive) };
            b.ends(&mut hall.ends[at].1, receive, WcStatus::SUCCESS)?;
        }
    }
    hall.nothing(b)?;
    hall.close(b)
}

pub(super) fn a_sender_waits_for_a_shared_receive<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 2)?;
    hall.send(1, 10)?;
    hall.nothing(b)?;
    hall.receive(0)?;
    hall.arrives(b, 1, 10, 0)?;
    hall.send(0, 11)?;
    hall.nothing(b)?;
    hall.receive(1)?;
    hall.arrives(b, 0, 11, 1)?;
    hall.close(b)
}

fn events<L: Env>(b: &mut Fixture<'_, L>, id: IdKey) -> Check<EventsOf<L>> {
    let device = b.server.drive().device_mut();
    let nic = device.device_of(id)?;
    let mut events = device.async_events(&nic)?;
    // Those of other scenarios on the same device.
    while events.next_event()?.is_some() {}
    Ok(events)
}

/// The next event from this source.
fn event_of<E: AsyncEventQueue>(events: &mut E, source: AsyncSource, at_most: Duration) -> Check<Option<AsyncEvent>> {
    let deadline = Instant::now() + at_most;
    loop {
        while let Some(event) = events.next_event()? {
            if event.source == source {
                return Ok(Some(event));
            }
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn the_limit_is_reported_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 1)?;
    let mut events = events(b, hall.ends[0].1.id)?;
    let source = AsyncSource::Srq(hall.srq.num());
    let expected = AsyncEvent { kind: AsyncEventKind::SRQ_LIMIT_REACHED, source };
    same("the limit of a new SRQ", hall.srq.limit()?, 0)?;
    let capacity = hall.srq.caps().max_wr;
    for wr_id in 0..4 {
        hall.receive(wr_id)?;
    }
    hall.srq.arm_limit(3)?;
    same("the limit", hall.srq.limit()?, 3)?;
    hall.send(0, 10)?;
    hall.arrives(b, 0, 10, 0)?;
    same("as many as the limit", event_of(&mut events, source, b.env.quiet())?, None)?;
    hall.send(0, 11)?;
    hall.arrives(b, 0, 11, 1)?;
    same("fewer than the limit", event_of(&mut events, source, SOON)?, Some(expected))?;
    same("the limit after its event", hall.srq.limit()?, 0)?;
    hall.send(0, 12)?;
    hall.arrives(b, 0, 12, 2)?;
    same("a second event", event_of(&mut events, source, b.env.quiet())?, None)?;
    // It is armed for what is taken after that, also where fewer are left already.
    hall.srq.arm_limit(2)?;
    same("at arming", event_of(&mut events, source, b.env.quiet())?, None)?;
    hall.send(0, 13)?;
    hall.arrives(b, 0, 13, 3)?;
    same("armed again", event_of(&mut events, source, SOON)?, Some(expected))?;
    hall.srq.arm_limit(1)?;
    hall.srq.arm_limit(0)?;
    hall.receive(0)?;
    hall.send(0, 14)?;
    hall.arrives(b, 0, 14, 0)?;
    same("disarmed", event_of(&mut events, source, b.env.quiet())?, None)?;
    // The queue of Linux 6.1 is longer than it says.
    same("above the capacity", hall.srq.arm_limit(4 * capacity), Err(Errno::EINVAL))?;
    drop(events);
    hall.close(b)
}

pub(super) fn a_receive_is_pinned_until_its_own_completion_is_polled<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 2)?;
    let rights = Access::LOCAL_WRITE;
    let (one, other) = (register(&hall.pds.1, vec![0; 8], rights)?, register(&hall.pds.1, vec![0; 8], rights)?);
    hall.srq.post_recv(0, [hall.mrs.1.sge(0..0), one.sge(0..4)])?;
    hall.srq.post_recv(1, [other.sge(0..4)])?;
    for (from, wr_id) in [(0, 10), (1, 11)] {
        hall.send(from, wr_id)?;
        b.ends(&mut hall.ends[from].0, wr_id, WcStatus::SUCCESS)?;
    }
    // The later one is polled first.
    b.ends(&mut hall.ends[1].1, 1, WcStatus::SUCCESS)?;
    same("the later one", deregister(other)?[0], 11)?;
    let Err(ErrorWith { given: one, error }) = one.deregister_vec() else {
        return Err(Failure("the first one is not pinned".into()));
    };
    refused::<()>("the first one", Err(error), MemoryReason::InFlight)?;
    b.ends(&mut hall.ends[0].1, 0, WcStatus::SUCCESS)?;
    same("the first one", deregister(one)?[0], 10)?;
    hall.close(b)
}

pub(super) fn what_an_srq_refuses<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 1)?;
    let none = SrqCaps { max_wr: 0, ..CAPS };
    same(
        "an SRQ without receives",
        hall.pds.1.create_srq(none).map_err(|error| error.reason()).map(drop),
        Err(CreateReason::Zero(Capacity::SrqMaxWr)),
    )?;
    let huge = SrqCaps { max_wr: u32::MAX, ..CAPS };
    let too_large = |error: CreateError| {
        let CreateReason::TooLarge { capacity, asked, .. } = error.reason() else { return None };
        Some((capacity, asked))
    };
    let of_too_many = hall.pds.1.create_srq(huge).map(drop).map_err(too_large);
    same("an SRQ of too many", of_too_many, Err(Some((Capacity::SrqMaxWr, u32::MAX))))?;
    let (mr, foreign) = (&hall.mrs.1, &hall.mrs.0);
    let source = register(&hall.pds.1, vec![0; 8], Access::empty())?;
    let (of_pd, read_only) = (PostReason::OtherPd(OfPd::Mr), PostReason::ReadOnly);
    same("memory of another PD", why(hall.srq.post_recv(1, foreign.sge(0..8))), Err(of_pd))?;
    same("memory that is not to be written", why(hall.srq.post_recv(1, source.sge(0..8))), Err(read_only))?;
    let beyond = PostReason::OutOfRange { len: Length::new(64) };
    same("beyond the end", why(hall.srq.post_recv(1, mr.sge(60..65))), Err(beyond))?;
    let three = PostReason::TooManyRanges { ranges: 3, max: 2 };
    same("three ranges", why(hall.srq.post_recv(1, [mr.sge(0..1), mr.sge(1..2), mr.sge(2..3)])), Err(three))?;
    let batch = [(1, mr.sge(0..8)), (2, source.sge(0..8))];
    same("a batch with a wrong one", stopped(hall.srq.post_recvs(batch)), Err((0, read_only)))?;
    let empty = stopped(hall.srq.post_recvs(batch.into_iter().take(0)));
    same("an empty batch", empty, Err((0, PostReason::EmptyBatch)))?;
    same("what is posted", hall.srq.unpolled(), 0)?;
    let qp = &mut hall.ends[0].1.qp;
    same("a receive of the QP", why(qp.post_recv(1, mr.sge(0..8))), Err(PostReason::HasSrq))?;
    same("receives of the QP", stopped(qp.post_recvs([(1, mr.sge(0..8))])), Err((0, PostReason::HasSrq)))?;
    let pool = hall.pds.1.pool(vec![0; 16], 8, Access::empty())?;
    let one = qp.post_recv_blocks(1, Parts::from_iter(pool.take().map(Part::from)));
    let one = one.map_err(|refused| (refused.error.reason(), refused.given.map(|blocks| blocks.len())));
    same("a receive of the QP, of a block", one, Err((PostReason::HasSrq, Some(1))))?;
    let batch = qp.post_recvs_blocks((1..3).zip(std::iter::from_fn(|| pool.take())));
    let batch = batch.map_err(|refused| (refused.error.error.reason(), refused.given.len()));
    same("receives of the QP, of blocks", batch, Err((PostReason::HasSrq, 2)))?;
    // The QP itself is as any other.
    hall.receive(0)?;
    hall.send(0, 10)?;
    hall.arrives(b, 0, 10, 0)?;
    let id = b.resolved()?;
    let wrong = b.end_on_srq(Side::Client, id, &hall.pds.0, &hall.srq);
    ensure(wrong.is_err_and(|failure| failure.0.contains("EINVAL")), || "a QP of another PD".into())?;
    b.destroy(Side::Client, id)?;
    deregister(source)?;
    hall.close(b)
}

pub(super) fn a_cq_has_room_for_an_srq_once<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let pd = b.pd(Side::Client)?;
    let [srq, other] = [pd.create_srq(CAPS)?, pd.create_srq(CAPS)?];
    let [one, two, three] = [b.resolved()?, b.resolved()?, b.resolved()?];
    let caps = Caps { max_send_wr: 2, ..test_caps() };
    let cq = b.client.drive().device_mut().create_cq(one, 8)?;
    let mut create = |id, srq: &SrqOf<L>| {
        let made = b
            .client
            .drive()
            .attach_qp(id, |device, attaching| device.create_qp_with_srq(attaching, &pd, &cq, &cq, srq, caps));
        made.map_err(|error| error.to_string())
    };
    let first = create(one, &srq).map_err(Failure)?;
    same("the first QP", cq.room().reserved(), 6)?;
    let second = create(two, &srq).map_err(Failure)?;
    same("the second one", cq.room().reserved(), 8)?;
    let full = create(three, &other);
    ensure(full.as_ref().is_err_and(|error| error.contains("EOVERFLOW")), || format!("{:?}", full.map(drop)))?;
    same("a QP too many", cq.room().reserved(), 8)?;
    for (id, qp) in [(one, first), (two, second)] {
        drop(qp);
        b.destroy(Side::Client, id)?;
    }
    same("without QPs", cq.room().reserved(), 0)?;
    b.destroy(Side::Client, three)?;
    Ok(())
}

pub(super) fn the_end_of_a_qp_leaves_the_receives<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 2)?;
    let mut events = events(b, hall.ends[0].1.id)?;
    hall.receive(0)?;
    hall.receive(1)?;
    let (client, server) = hall.ends.remove(0);
    b.server.drive().disconnect(server.id, Time::NEVER)?;
    same("the QP", server.qp.state()?, QpState::ERR)?;
    b.expect(Side::Client, client.id, CmEvent::Disconnected, 0, pdl::NONE)?;
    // Not every device has the event.
    if let Some(event) = event_of(&mut events, AsyncSource::Qp(server.qp.num()), b.env.quiet())? {
        same("the event of the QP", event.kind, AsyncEventKind::QP_LAST_WQE_REACHED)?;
    }
    let mut server = server;
    thread::sleep(b.env.quiet());
    same("a flushed receive", server.cq.poll_one()?, None)?;
    same("receives", hall.srq.unpolled(), 2)?;
    b.part((client, server))?;
    hall.send(0, 10)?;
    hall.arrives(b, 0, 10, 0)?;
    // A new connection takes the next one.
    hall.connect(b)?;
    hall.send(1, 11)?;
    hall.arrives(b, 1, 11, 1)?;
    drop(events);
    hall.close(b)
}

pub(super) fn receives_that_are_left_are_pinned_until_the_srq_is_destroyed<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let mut hall = Hall::open(b, 1)?;
    let [left, lost] = [(), ()].map(|()| register(&hall.pds.1, vec![0; 8], Access::LOCAL_WRITE));
    let (left, lost) = (left?, lost?);
    hall.srq.post_recv(0, lost.sge(0..8))?;
    hall.srq.post_recv(1, left.sge(0..8))?;
    hall.send(0, 10)?;
    b.ends(&mut hall.ends[0].0, 10, WcStatus::SUCCESS)?;
    // The completion of the first one is not polled, and the QP is gone.
    let (client, server) = hall.ends.remove(0);
    let (id, mut cq) = (server.id, server.cq);
    drop(server.qp);
    b.destroy(Side::Server, id)?;
    drop(client.qp);
    b.destroy(Side::Client, client.id)?;
    let polled = cq.poll_one()?;
    if let Some(done) = polled {
        same("what the device has left", (done.wr_id, done.status), (0, WcStatus::SUCCESS))?;
    }
    same("no other", (cq.poll_one()?, cq.room().reserved()), (None, 0))?;
    same("receives", hall.srq.unpolled(), if polled.is_some() { 1 } else { 2 })?;
    let Err(ErrorWith { given: left, error }) = left.deregister_vec() else {
        return Err(Failure("it is not pinned".into()));
    };
    refused::<()>("the SRQ is there", Err(error), MemoryReason::InFlight)?;
    let Hall { pds, mrs, srq, .. } = hall;
    drop(srq);
    deregister(left)?;
    deregister(lost)?;
    an_srq_goes_with_its_last_qp(b, &pds, &mrs.0)?;
    deregister(mrs.0)?;
    deregister(mrs.1).map(drop)
}

/// What it had posted pins its memory until then, also where the memory is dropped.
fn an_srq_goes_with_its_last_qp<L: Env>(b: &mut Fixture<'_, L>, pds: &(PdOf<L>, PdOf<L>), source: &MrOf<L>) -> Check {
    let (mut srq, before) = (pds.1.create_srq(CAPS)?, pds.1.users() - 1);
    let memory = register(&pds.1, vec![0; 16], Access::LOCAL_WRITE)?;
    srq.post_recv(1, memory.sge(0..8))?;
    srq.post_recv(2, memory.sge(8..16))?;
    let (mut client, mut server) = b.join_on_srq(&pds.0, &pds.1, &srq)?;
    drop(srq);
    let mut one = [Completion::default()];
    let waited = thread::scope(|scope| {
        let post = || {
            thread::sleep(Duration::from_millis(50));
            client.qp.post_send(SendWr::send(3, source.sge(1..9)))
        };
        let posted = scope.spawn(post);
        // Nothing of the QP is in flight.
        let waited = (server.cq.is_idle(), server.cq.wait(&mut one)?);
        posted.join().map_err(|_| Failure("the sender panicked".into()))??;
        Ok::<_, Failure>(waited)
    })?;
    same("a wait", (waited, one[0].wr_id, one[0].status), ((true, 1), 1, WcStatus::SUCCESS))?;
    b.ends(&mut client, 3, WcStatus::SUCCESS)?;
    same("the message", &contents(&memory)?[..9], &[1, 2, 3, 4, 5, 6, 7, 8, 0])?;
    drop(memory);
    used("a QP, an SRQ, and memory that is pinned", &pds.1, before + 3)?;
    let End { id, qp, mut cq, .. } = server;
    drop(qp);
    b.destroy(Side::Server, id)?;
    same("a completion more", (cq.poll_one()?, cq.room().reserved()), (None, 0))?;
    used("nothing is left", &pds.1, before)?;
    drop(client.qp);
    b.destroy(Side::Client, client.id)
}

pub(super) fn the_peer_sees_that_a_qp_has_an_srq<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    b.listen()?;
    let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
    let srqs = (pds.0.create_srq(CAPS)?, pds.1.create_srq(CAPS)?);
    for (of_client, of_server) in [(true, false), (false, true)] {
        let id = b.resolved()?;
        let client = if of_client { Some(b.end_on_srq(Side::Client, id, &pds.0, &srqs.0)?) } else { None };
        if client.is_none() {
            b.attach_qp(Side::Client, id)?;
        }
        b.connect(id, &[])?;
        let request = b.expect_any(Side::Server, CmEvent::ConnectRequest)?;
        same("the request", request.param.srq, of_client)?;
        let server = if of_server { Some(b.end_on_srq(Side::Server, request.id, &pds.1, &srqs.1)?) } else { None };
        if server.is_none() {
            b.attach_qp(Side::Server, request.id)?;
        }
        b.accept(request.id, &[])?;
        let answer = b.expect(Side::Client, id, CmEvent::Established, 0, pdl::RESPONSE)?;
        same("the answer", answer.param.srq, of_server)?;
        b.expect(Side::Server, request.id, CmEvent::Established, 0, pdl::NONE)?;
        drop((client, server));
        b.destroy(Side::Client, id)?;
        b.destroy(Side::Server, request.id)?;
    }
    Ok(())
}
