//! The accounting of work requests in flight, which decides when memory may be released: the queues of QPs, and shared
//! receive queues, on a device that completes what it likes, in any order that ibv_poll_cq(3) and the transport allow.
//! On iWARP a read completes when its answer has come, later than what was posted behind it, and may be flushed twice.
//! The provider refuses requests, and executes them nevertheless, or not. It completes numbers that were not posted. The
//! application has posts of its own.
//!
//! Memory stays pinned while a work request that names it may be executed, or has a completion that can be polled: in
//! the poll some providers write to it. Each completion of an accepted request is returned once, with the user's
//! `wr_id`. When all QPs and SRQs are destroyed and the CQs are polled empty, nothing is pinned but by QPs that could
//! not be destroyed.
//!
//! Requests own blocks. A request is over (`Qp::is_over`) only when it can neither be executed nor polled, and what the
//! requests of a destroyed QP or SRQ own goes only then, and then does.

mod device;
mod queues;

use std::sync::{Arc, Weak};

use cmid_proto::datapath::{Caps, Completion, SendFlags, SrqCaps, WcOpcode, WcStatus};

use crate::input::Input;
use crate::say::say;
use device::{Device, Poster, Queue, Wr};
use queues::{Cq, Leaked, Pd, Qp, Request, Srq};

/// PDs, CQs, and QP numbers.
const PDS: usize = 2;
const CQS: usize = 3;
const QP_NUMS: usize = 4;
/// QPs and SRQs at a time.
const QPS: usize = 4;
const SRQS: usize = 2;
/// The capacity of each queue, its ranges, and the depth of CQs.
const CAPACITY: u32 = 3;
const SGES: usize = 2;
const DEPTH: u32 = 30;

/// The `wr_id`s of posts.
const WR_IDS: [u64; 4] = [5, (1 << 62) - 1, 1 << 62, u64::MAX];

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    while !input.is_over() {
        world.step(&mut input);
        world.look();
    }
    world.rest();
}

impl Wr {
    /// The same as a request of this kind of queue.
    fn of(self, is_recv: bool) -> Self {
        Wr { is_signaled: self.is_signaled || is_recv, is_read: self.is_read && !is_recv, ..self }
    }

    fn request(&self, is_recv: bool) -> Request<'_> {
        let opcode = match self.is_read {
            _ if is_recv => WcOpcode::RECV,
            true => WcOpcode::RDMA_READ,
            false => WcOpcode::RDMA_WRITE,
        };
        let flags = if self.is_signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        Request { wr_id: self.wr_id, lkeys: &self.keys, opcode, flags }
    }
}

/// A QP with its handle, unless it is leaked.
struct Member {
    qp: Option<Qp>,
    number: u32,
    pd: usize,
    cqs: [usize; 2],
    srq: Option<usize>,
    is_iwarp: bool,
    /// Its number, which no other QP has.
    serial: u64,
}

struct World {
    pds: Vec<Pd>,
    cqs: Vec<Option<Cq>>,
    qps: Vec<Option<Member>>,
    /// With their PDs and numbers.
    srqs: Vec<Option<(Srq, usize, u64)>>,
    /// Those of leaked QPs end with the world: a fuzzer's process has more worlds than an SRQ has numbers.
    leaked: Vec<Leaked>,
    /// What the requests of each queue own, also of queues that are gone.
    owned: Vec<(Poster, Weak<()>)>,
    serial: u64,
    /// The keys that can be posted, with their PDs.
    keys: Vec<(u32, usize)>,
    /// The keys of memory that is being deregistered, with their PDs. They cannot be posted.
    ending: Vec<(u32, usize)>,
    last_key: u32,
    device: Device,
}

impl World {
    fn new() -> Self {
        World {
            pds: (0..PDS).map(|_| Pd::new()).collect(),
            cqs: (0..CQS).map(|_| Some(Cq::new(DEPTH))).collect(),
            qps: (0..QPS).map(|_| None).collect(),
            srqs: (0..SRQS).map(|_| None).collect(),
            leaked: Vec::new(),
            owned: Vec::new(),
            serial: 0,
            keys: Vec::new(),
            ending: Vec::new(),
            last_key: 0,
            device: Device::new(CQS),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let at = input.below(QPS);
        match input.below(32) {
            0..=2 => self.create(at, input),
            3 => self.create_srq(input),
            4 | 5 => self.register(input),
            6..=13 => self.post(at, input),
            14 | 15 => self.post_batch(at, input),
            16..=22 => self.execute(at, input),
            23..=26 => self.poll(input),
            27 => self.destroy(at, input),
            28 => self.destroy_srq(input.below(SRQS)),
            29 if input.once_in(4) => self.close(input.below(CQS)),
            30 if input.once_in(4) => self.repeat(input.below(CQS)),
            30 if input.once_in(4) => self.invent(Queue { qp: at, is_recv: input.once_in(2) }),
            30 => self.complete_own(input.below(CQS), input),
            _ => self.deregister(input),
        }
    }

    fn create(&mut self, at: usize, input: &mut Input<'_>) {
        if self.qps[at].is_some() {
            return;
        }
        let number = input.below(QP_NUMS) as u32;
        let (pd, cqs) = (input.below(PDS), [input.below(CQS), input.below(CQS)]);
        let srq = Some(input.below(3 * SRQS)).filter(|&srq| srq < SRQS);
        let srq = srq.filter(|&srq| self.srqs[srq].as_ref().is_some_and(|(_, of, _)| *of == pd));
        let is_used = self.qps.iter().flatten().any(|member| member.number == number);
        let [Some(send), Some(recv)] = cqs.map(|cq| self.cqs[cq].as_ref()) else { return };
        if is_used {
            return;
        }
        let caps =
            Caps { max_send_wr: CAPACITY, max_recv_wr: CAPACITY, max_send_sge: 2, max_recv_sge: 2, max_inline: 0 };
        let shared = srq.and_then(|srq| self.srqs[srq].as_ref()).map(|(srq, ..)| srq);
        let is_iwarp = input.once_in(2);
        let created = Qp::create(&self.pds[pd], [send, recv], shared, caps, is_iwarp);
        say(|| {
            format!(
                "QP {at} with number {number}, CQs {cqs:?}, SRQ {srq:?}, iWARP {is_iwarp}: {:?}",
                created.as_ref().err()
            )
        });
        if let Ok(mut qp) = created {
            let serial = self.serial();
            qp.own([false, true].map(|is_recv| self.owned_by(Poster::Queue { qp: serial, is_recv })));
            self.device.create(at, serial, srq, is_iwarp);
            self.qps[at] = Some(Member { qp: Some(qp), number, pd, cqs, srq, is_iwarp, serial });
        }
    }

    fn create_srq(&mut self, input: &mut Input<'_>) {
        let (at, pd) = (input.below(SRQS), input.below(PDS));
        // The earlier one may still have QPs.
        if self.srqs[at].is_none() && !self.qps.iter().flatten().any(|member| member.srq == Some(at)) {
            let caps = SrqCaps { max_wr: CAPACITY, max_sge: SGES as u32 };
            let mut srq = Srq::create(&self.pds[pd], caps).expect("a number");
            let serial = self.serial();
            srq.own(self.owned_by(Poster::Srq(serial)));
            self.srqs[at] = Some((srq, pd, serial));
            say(|| format!("SRQ {at} on PD {pd}"));
        }
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn owned_by(&mut self, poster: Poster) -> Arc<()> {
        let owned = Arc::new(());
        self.owned.push((poster, Arc::downgrade(&owned)));
        owned
    }

    fn register(&mut self, input: &mut Input<'_>) {
        if self.keys.len() < 6 {
            self.last_key += 1;
            self.keys.push((self.last_key, input.below(PDS)));
        }
    }

    /// Some keys of a PD, at most [`SGES`].
    fn keys_of(&self, pd: usize, input: &mut Input<'_>) -> Vec<u32> {
        let of: Vec<_> = self.keys.iter().filter(|(_, key_pd)| *key_pd == pd).map(|(key, _)| *key).collect();
        (0..input.below(SGES + 1)).filter_map(|_| input.pick(&of)).collect()
    }

    fn wr(&self, pd: usize, input: &mut Input<'_>) -> Wr {
        let wr_id = if input.once_in(8) { WR_IDS[input.below(4)] } else { WR_IDS[0] };
        let is_signaled = !input.once_in(4);
        let is_read = input.once_in(2);
        Wr { wr_id, keys: self.keys_of(pd, input), is_signaled, is_read, is_refused: false }
    }

    fn post(&mut self, at: usize, input: &mut Input<'_>) {
        let is_recv = input.once_in(2);
        let Some(Member { pd, srq, .. }) = self.qps[at] else { return };
        let wr = self.wr(pd, input);
        match srq {
            Some(srq) if is_recv => self.post_srq(srq, wr, input.once_in(8)),
            _ => self.post_to_queue(Queue { qp: at, is_recv }, wr.of(is_recv), input),
        }
    }

    fn post_srq(&mut self, at: usize, wr: Wr, is_refused: bool) {
        let Some((srq, _, serial)) = &mut self.srqs[at] else { return };
        let is_full = srq.unpolled() == CAPACITY;
        let posted = srq.post(wr.wr_id, &wr.keys);
        say(|| format!("receive {wr:?} on SRQ {at}: {posted:x?}"));
        assert_eq!(posted.is_none(), is_full);
        if let Some(token) = posted {
            if is_refused {
                srq.withdraw(token);
            }
            self.device.post_srq(at, *serial, token, Wr { is_refused, ..wr });
        }
    }

    fn post_to_queue(&mut self, queue: Queue, wr: Wr, input: &mut Input<'_>) {
        let Some(Member { qp: Some(qp), .. }) = &mut self.qps[queue.qp] else { return };
        if self.device.is_stuck(queue) {
            return;
        }
        let wr = Wr { is_refused: input.once_in(8), ..wr };
        let posted = qp.post(queue.is_recv, &wr.request(queue.is_recv), wr.is_refused);
        say(|| format!("{wr:?} on {queue:?}: {posted:x?}"));
        let is_full = self.device.unretired(queue) == CAPACITY as usize;
        assert_eq!(posted.is_none(), is_full, "{wr:?}");
        if let Some(token) = posted {
            self.device.post(queue, token, wr, input.once_in(2));
        }
    }

    fn post_batch(&mut self, at: usize, input: &mut Input<'_>) {
        let queue = Queue { qp: at, is_recv: input.once_in(2) };
        let Some(Member { pd, srq, .. }) = self.qps[at] else { return };
        if queue.is_recv && srq.is_some() || self.device.is_stuck(queue) {
            return;
        }
        let wrs: Vec<_> = (0..1 + input.below(3)).map(|_| self.wr(pd, input).of(queue.is_recv)).collect();
        let requests: Vec<_> = wrs.iter().map(|wr| wr.request(queue.is_recv)).collect();
        let taken = if input.once_in(4) { input.below(wrs.len()) } else { wrs.len() };
        let has_rest = input.once_in(2);
        let Some(Member { qp: Some(qp), .. }) = &mut self.qps[at] else { return };
        let posted = qp.post_batch(queue.is_recv, &requests, taken);
        say(|| format!("{taken} of {wrs:?} on {queue:?}: {posted:x?}"));
        for (at, (token, wr)) in posted.into_iter().flatten().zip(wrs).enumerate() {
            self.device.post(queue, token, Wr { is_refused: at >= taken, ..wr }, has_rest);
        }
    }

    /// The device executes or fails a work request of a QP.
    fn execute(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(Member { number, cqs, .. }) = self.qps[at] else { return };
        let queue = Queue { qp: at, is_recv: input.once_in(2) };
        let completed = self.device.execute(queue, cqs[usize::from(queue.is_recv)], number, input);
        if let Some((token, cq, has_failed)) = completed {
            say(|| format!("{queue:?} completes {token:x} in CQ {cq}, failed {has_failed}"));
            let status = if has_failed { WcStatus::WR_FLUSH_ERR } else { WcStatus::SUCCESS };
            match &self.cqs[cq] {
                Some(cq) => cq.complete(Completion { wr_id: token, qp_num: number, status, ..Completion::default() }),
                None => self.device.close(cq),
            }
        }
    }

    fn poll(&mut self, input: &mut Input<'_>) {
        let (at, room) = (input.below(CQS), input.below(5));
        let mut completions = [Completion::default(); 4];
        let Some(cq) = &mut self.cqs[at] else { return };
        let before = cq.completions();
        let result = cq.poll(&mut completions[..room]);
        let (expected, repeated) = self.device.poll(at, before - cq.completions());
        say(|| format!("poll of {room} of CQ {at}: {result:?}"));
        assert!(result.is_ok() || repeated, "nothing was reported twice");
        let polled: Vec<_> = completions[..result.unwrap_or(0)].iter().map(|completion| completion.wr_id).collect();
        assert_eq!(polled, expected, "each completion is returned once");
    }

    fn destroy(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(member) = &mut self.qps[at] else { return };
        let Some(qp) = member.qp.take() else { return };
        if input.once_in(16) {
            say(|| format!("QP {at} is leaked"));
            self.leaked.push(qp.leak());
            return;
        }
        drop(qp);
        let (number, srq) = (member.number, member.srq);
        self.qps[at] = None;
        // libmlx5 removes its completions.
        let is_removed = input.once_in(2);
        say(|| format!("QP {at} is destroyed, its completions are removed: {is_removed}"));
        self.device.destroy(at, is_removed.then_some(number));
        if is_removed {
            self.cqs.iter().flatten().for_each(|cq| cq.remove(number));
        }
        self.end_srq(srq);
    }

    fn destroy_srq(&mut self, at: usize) {
        if self.srqs[at].take().is_some() {
            say(|| format!("SRQ {at} is dropped"));
            self.end_srq(Some(at));
        }
    }

    /// The device destroys an SRQ without a handle after its last QP.
    fn end_srq(&mut self, srq: Option<usize>) {
        let Some(at) = srq.filter(|&at| self.srqs[at].is_none()) else { return };
        if !self.qps.iter().flatten().any(|member| member.srq == Some(at)) {
            self.device.destroy_srq(at);
        }
    }

    /// Drops the handle of a CQ.
    fn close(&mut self, at: usize) {
        say(|| format!("CQ {at} is dropped"));
        self.cqs[at] = None;
        self.device.close(at);
    }

    /// The provider reports the last completion of a CQ again.
    fn repeat(&mut self, at: usize) {
        let is_iwarp = |qp: usize| self.qps[qp].as_ref().is_some_and(|member| member.is_iwarp);
        let (Some(cq), Some((wr_id, qp_num))) = (&self.cqs[at], self.device.repeat(at, is_iwarp)) else { return };
        say(|| format!("CQ {at} reports {wr_id:x} twice"));
        cq.complete(Completion { wr_id, qp_num, ..Completion::default() });
    }

    /// The provider completes a number of a queue that was not posted.
    fn invent(&mut self, queue: Queue) {
        let cq = self.qps[queue.qp].as_ref().map(|member| member.cqs[usize::from(queue.is_recv)]);
        let Some((reports, at)) = cq.and_then(|cq| Some((self.cqs[cq].as_ref()?, cq))) else { return };
        if let Some(wr_id) = self.device.invent(queue, at, CAPACITY) {
            say(|| format!("CQ {at} reports {wr_id:x}, which was not posted"));
            reports.complete(Completion { wr_id, qp_num: u32::MAX, ..Completion::default() });
        }
    }

    /// A request that the application has posted itself completes. Its number is from 2^63 on, else as that of a request, or of
    /// no queue.
    fn complete_own(&mut self, at: usize, input: &mut Input<'_>) {
        let member = self.qps[input.below(QPS)].as_ref();
        let of = member.map(|member| Poster::Queue { qp: member.serial, is_recv: input.once_in(2) });
        let like = of.and_then(|of| self.device.of(of).next()).unwrap_or(u64::MAX << 32);
        let wr_id = (like ^ (input.below(2) as u64) << 32) | 1 << 63;
        if let Some(cq) = &self.cqs[at] {
            self.device.complete_own(at, wr_id);
            say(|| format!("CQ {at} has {wr_id:x} of the application"));
            cq.complete(Completion { wr_id, qp_num: u32::MAX, ..Completion::default() });
        }
    }

    fn deregister(&mut self, input: &mut Input<'_>) {
        if !self.keys.is_empty() {
            let (key, pd) = self.keys.swap_remove(input.below(self.keys.len()));
            say(|| format!("deregisters {key}"));
            self.ending.push((key, pd));
        }
    }

    fn look(&mut self) {
        for &(key, pd) in self.keys.iter().chain(&self.ending) {
            assert!(self.pds[pd].names(key) || !self.device.names(key), "key {key} is in flight and not pinned");
        }
        for member in self.qps.iter().flatten() {
            for is_recv in [false, true] {
                let mut tokens = self.device.of(Poster::Queue { qp: member.serial, is_recv });
                let is_over = |token| member.qp.as_ref().is_some_and(|qp| qp.is_over(is_recv, token));
                assert!(!tokens.any(is_over), "a request in flight is over");
            }
        }
        for (srq, _, serial) in self.srqs.iter().flatten() {
            assert!(
                !self.device.of(Poster::Srq(*serial)).any(|token| srq.is_over(token)),
                "a receive in flight is over"
            );
        }
        for (poster, owned) in &self.owned {
            let is_gone = owned.strong_count() == 0;
            assert!(
                !is_gone || self.device.of(*poster).next().is_none(),
                "{poster:?}: its requests own nothing any more"
            );
        }
        let World { pds, ending, owned, .. } = self;
        owned.retain(|(_, owned)| owned.strong_count() > 0);
        ending.retain(|&(key, pd)| pds[pd].names(key));
    }

    /// Everything ends.
    fn rest(mut self) {
        for at in 0..QPS {
            self.destroy(at, &mut Input::new(&[]));
        }
        for at in 0..SRQS {
            self.destroy_srq(at);
        }
        // What a QP has left until then is over at the end of the second poll that finds nothing, and of one more if a
        // poll reports a doubt.
        for at in 0..CQS {
            for _ in 0..DEPTH + 4 {
                self.poll(&mut Input::new(&[at as u8, 4]));
            }
        }
        self.look();
        let leaked: Vec<_> = self.qps.iter().flatten().map(|member| (member.serial, member.srq)).collect();
        for (poster, _) in &self.owned {
            let is_leaked = match poster {
                Poster::Queue { qp, .. } => leaked.iter().any(|(serial, _)| serial == qp),
                Poster::Srq(_) => leaked.iter().any(|(_, srq)| srq.is_some()),
                Poster::Nobody => false,
            };
            assert!(is_leaked, "{poster:?}: what its requests own is not freed");
        }
        for &(key, pd) in self.keys.iter().chain(&self.ending) {
            let is_leaked = self.qps.iter().flatten().any(|member| member.pd == pd);
            assert!(is_leaked || !self.pds[pd].names(key), "key {key} stays pinned");
        }
    }
}
