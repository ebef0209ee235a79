//! Completion channels that several CQs share, and CQs that several QPs share.

use std::thread;
use std::time::Instant;

use cmid_harness::failure::{ensure, same};
use cmid_harness::fixture::{CqOf, DeviceOf, End, EndOf, MrOf, PdOf, SOON, Side};
use cmid_harness::{Check, Env, Fixture, test_caps};
use cmid_proto::datapath::{CreateReason, SendWr, WcOpcode, WcStatus, prelude::*};
use cmid_proto::memory::Access;
use cmid_proto::{Errno, IdKey};

use super::memory::{deregister, register};

type ChannelOf<L> = <DeviceOf<L> as DataPath>::CompChannel;
type QpOf<L> = <DeviceOf<L> as DataPath>::Qp;

/// The memory of both sides, and their PDs.
struct Memory<L: Env> {
    pds: (PdOf<L>, PdOf<L>),
    mrs: (MrOf<L>, MrOf<L>),
}

impl<L: Env> Memory<L> {
    fn open(b: &mut Fixture<'_, L>) -> Check<Self> {
        b.listen()?;
        let pds = (b.pd(Side::Client)?, b.pd(Side::Server)?);
        let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mrs = (register(&pds.0, vec![1; 8], open)?, register(&pds.1, vec![2; 8], open)?);
        Ok(Memory { pds, mrs })
    }

    /// A connection; the QP of the client reports to a CQ that is given or made.
    fn connect<T>(
        &self,
        b: &mut Fixture<'_, L>,
        client: impl FnOnce(&mut Fixture<'_, L>, IdKey, &PdOf<L>) -> Check<T>,
    ) -> Check<(T, EndOf<L>)> {
        let param = b.param();
        b.join_ends(
            param,
            |b, id| client(b, id, &self.pds.0),
            |b, id| b.end(Side::Server, id, &self.pds.1, test_caps()),
        )
    }

    /// Writes to the server.
    fn write(&self, qp: &mut QpOf<L>, wr_id: u64) -> Check {
        Ok(qp.post_send(SendWr::write(wr_id, self.mrs.0.sge(0..8), self.mrs.1.remote(0)))?)
    }

    fn close(self) -> Check {
        deregister(self.mrs.0)?;
        deregister(self.mrs.1).map(drop)
    }
}

/// Waits for the next notification of a channel.
fn notified<L: Env>(channel: &ChannelOf<L>) -> Check<u32> {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(cq) = channel.next_notification()? {
            return Ok(cq);
        }
        ensure(Instant::now() < deadline, || format!("no notification in {SOON:?}"))?;
        thread::yield_now();
    }
}

fn end_on_channel<L: Env>(b: &mut Fixture<'_, L>, id: IdKey, pd: &PdOf<L>, channel: &ChannelOf<L>) -> Check<EndOf<L>> {
    let drive = b.client.drive();
    let (qp, cq) = drive.attach_qp(id, |device, attaching| {
        let nic = device.device_of(id)?;
        let cq = device.create_cq_at(&nic, Some(channel), 16, 0)?;
        Ok((device.create_qp(attaching, pd, &cq, &cq, test_caps())?, cq))
    })?;
    Ok(End { side: Side::Client, id, qp, cq })
}

pub(super) fn a_channel_reports_which_cq_has_completions<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let memory = Memory::open(b)?;
    let id = b.resolved()?;
    let channel = {
        let device = b.client.drive().device_mut();
        let nic = device.device_of(id)?;
        let (channel, vectors) = (device.create_comp_channel(&nic)?, nic.comp_vectors());
        let made = device.create_cq_at(&nic, Some(&channel), 4, vectors);
        let reason = CreateReason::NoVector { vector: vectors, vectors };
        same("a vector too many", made.map(drop).map_err(|error| error.reason()), Err(reason))?;
        channel
    };
    b.destroy(Side::Client, id)?;
    let connect = |b: &mut Fixture<'_, L>| memory.connect(b, |b, id, pd| end_on_channel(b, id, pd, &channel));
    let mut ends = vec![connect(b)?, connect(b)?, connect(b)?];
    let numbers: Vec<u32> = ends.iter().map(|(client, _)| client.cq.num()).collect();
    ensure(numbers[0] != numbers[1] && numbers[1] != numbers[2], || format!("the numbers {numbers:?}"))?;
    same("a new channel", channel.next_notification()?, None)?;
    same("by a CQ", ends[0].0.cq.take_notifications(), Err(Errno::EINVAL))?;
    same("a wait of a CQ", ends[0].0.cq.wait(&mut []), Err(Errno::EINVAL))?;
    for (client, _) in &ends {
        client.cq.arm()?;
    }
    for (at, wr_id) in [(1, 10), (0, 11)] {
        memory.write(&mut ends[at].0.qp, wr_id)?;
        same("the CQ", notified::<L>(&channel)?, numbers[at])?;
        b.ends(&mut ends[at].0, wr_id, WcStatus::SUCCESS)?;
        same("another one", channel.next_notification()?, None)?;
    }
    // The third one is armed still. The other two are not.
    memory.write(&mut ends[1].0.qp, 12)?;
    b.ends(&mut ends[1].0, 12, WcStatus::SUCCESS)?;
    memory.write(&mut ends[2].0.qp, 13)?;
    same("the third CQ", notified::<L>(&channel)?, numbers[2])?;
    // The notification of a CQ goes with it.
    b.ends(&mut ends[2].0, 13, WcStatus::SUCCESS)?;
    ends[2].0.cq.arm()?;
    memory.write(&mut ends[2].0.qp, 14)?;
    b.ends(&mut ends[2].0, 14, WcStatus::SUCCESS)?;
    let (client, server) = ends.remove(2);
    let Fixture { env, .. } = &*b;
    thread::sleep(env.quiet());
    let End { side, id, qp, cq } = client;
    drop((qp, cq, server.qp));
    b.destroy(side, id)?;
    b.destroy(Side::Server, server.id)?;
    same("of a CQ that is gone", channel.next_notification()?, None)?;
    // The CQs keep the channel.
    let again = channel.fd().try_clone_to_owned().is_ok();
    ensure(again, || "the channel has no descriptor".into())?;
    drop(channel);
    ends[0].0.cq.arm()?;
    memory.write(&mut ends[0].0.qp, 15)?;
    b.ends(&mut ends[0].0, 15, WcStatus::SUCCESS)?;
    for ends in ends {
        b.part(ends)?;
    }
    memory.close()
}

pub(super) fn several_qps_report_to_one_cq<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let memory = Memory::open(b)?;
    let id = b.resolved()?;
    let mut cq: CqOf<L> = b.client.drive().device_mut().create_cq(id, 32)?;
    b.destroy(Side::Client, id)?;
    let mut ends = Vec::new();
    for reserved in [16, 32] {
        ends.push(memory.connect(b, |b, id, pd| {
            let made = b
                .client
                .drive()
                .attach_qp(id, |device, attaching| device.create_qp(attaching, pd, &cq, &cq, test_caps()));
            Ok((id, made?))
        })?);
        same("its room", cq.room().reserved(), reserved)?;
    }
    let numbers: Vec<u32> = ends.iter().map(|((_, qp), _)| qp.num()).collect();
    for (at, wr_id) in [(0, 1), (1, 1), (1, 2), (0, 2)] {
        memory.write(&mut ends[at].0.1, wr_id)?;
        let deadline = Instant::now() + SOON;
        let done = loop {
            if let Some(done) = cq.poll_one()? {
                break done;
            }
            ensure(Instant::now() < deadline, || "no completion".into())?;
        };
        same("a completion", (done.qp_num, done.wr_id), (numbers[at], wr_id))?;
        same("its result", (done.status, done.opcode), (WcStatus::SUCCESS, WcOpcode::RDMA_WRITE))?;
    }
    for ((id, qp), server) in ends {
        drop(qp);
        b.destroy(Side::Client, id)?;
        drop(server.qp);
        b.destroy(Side::Server, server.id)?;
    }
    same("a completion more", cq.poll_one()?, None)?;
    same("its room without QPs", cq.room().reserved(), 0)?;
    memory.close()
}

pub(super) fn soft_roce_does_not_moderate_notifications<L: Env>(b: &mut Fixture<'_, L>) -> Check {
    let memory = Memory::open(b)?;
    let mut ends = memory.connect(b, |b, id, pd| b.end(Side::Client, id, pd, test_caps()))?;
    for (count, period_us) in [(4, 100), (0, 0)] {
        same("moderation", ends.0.cq.moderate(count, period_us), Err(Errno::EOPNOTSUPP))?;
    }
    // The CQ is as before.
    ends.0.cq.arm()?;
    memory.write(&mut ends.0.qp, 1)?;
    b.ends(&mut ends.0, 1, WcStatus::SUCCESS)?;
    let deadline = Instant::now() + SOON;
    while ends.0.cq.take_notifications()? == 0 {
        ensure(Instant::now() < deadline, || "no notification".into())?;
    }
    b.part(ends)?;
    memory.close()
}
