//! The data path.

use std::time::{Duration, Instant};

use cmid_proto::datapath::{PostError, PostReason, SendWr, WcOpcode, prelude::*};
use cmid_proto::{Call, Errno};
use cmid_verbs::{Access, Completion, Cq, Mr, QpState, Remote, WcStatus};

use crate::env::{End, Pair};
use crate::refused_posts::is_iwarp;

const PAGE: usize = 4096;
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the outcome of a post with the reason alone.
pub(crate) fn why(posted: Result<(), PostError>) -> Result<(), PostReason> {
    posted.map_err(|error| error.reason())
}

pub(crate) fn register(end: &End, fill: u8, access: Access) -> Mr {
    end.pd.register(vec![fill; PAGE], access).expect("register")
}

/// Deregisters an unpinned MR and returns its buffer.
pub(crate) fn returned(memory: Mr) -> Vec<u8> {
    let returned = memory.deregister().expect("deregistered");
    assert!(returned.other.is_none());
    returned.buffer.into_vec().expect("it was a Vec")
}

pub(crate) fn bytes<const N: usize>(memory: &Mr, offset: usize) -> [u8; N] {
    let mut copy = [0; N];
    memory.read(offset, &mut copy).expect("inside");
    copy
}

/// Returns the next completion, by busy polling.
pub(crate) fn polled(cq: &mut Cq) -> Completion {
    let started = Instant::now();
    let mut one = [Completion::default()];
    while cq.poll(&mut one).expect("poll") == 0 {
        assert!(started.elapsed() < LIMIT, "no completion");
    }
    one[0]
}

pub(crate) fn success(completion: Completion, wr_id: u64, opcode: WcOpcode) -> Completion {
    assert_eq!((completion.status, completion.wr_id, completion.opcode), (WcStatus::SUCCESS, wr_id, opcode));
    completion
}

/// Soft-iWARP answers a short read across pages with other bytes (hazard P95). If this fails there, the kernel is
/// mended: change P95 and semantics 16.2, 30.
pub(crate) fn short_read_across_pages() {
    const SHORT: usize = 13;
    let Pair { client: _client, mut server, mut c, s, .. } = Pair::connected();
    let content: Vec<u8> = (0..2 * PAGE).map(|at| (at % 251) as u8).collect();
    let mut pages = s.pd.register(vec![0; 3 * PAGE], Access::LOCAL_WRITE | Access::REMOTE_READ).expect("register");
    let first = (pages.addr().next_multiple_of(PAGE as u64) - pages.addr()) as usize;
    pages.write(first, &content).expect("inside");
    let into = register(&c, 0, Access::LOCAL_WRITE);
    let from = PAGE - 8;
    c.qp.post_send(SendWr::read(1, into.sge(0..SHORT), pages.remote(first + from))).expect("post_send");
    success(polled(&mut c.cq), 1, WcOpcode::RDMA_READ);
    let right = &content[from..from + SHORT];
    // As many as are on the second page, and the rest from the beginning of the first one.
    let wrong = [&content[from..from + 5], &content[..8]].concat();
    let answer: [u8; SHORT] = bytes(&into, 0);
    assert_eq!(&answer[..], if is_iwarp(&mut server, &s) { &wrong } else { right });
}

/// Soft-iWARP checks no right of a peer that reads (hazard P107). If this fails there, the kernel is mended: change P107
/// and semantics 16.2, 31.
pub(crate) fn reads_without_the_right() {
    let Pair { client: _client, mut server, mut c, s, .. } = Pair::connected();
    let (own, into) = (register(&s, 7, Access::LOCAL_WRITE), register(&c, 0, Access::LOCAL_WRITE));
    c.qp.post_send(SendWr::read(1, into.sge(0..8), own.remote(0))).expect("post_send");
    let seen = (polled(&mut c.cq).status, bytes(&into, 0));
    let expected =
        if is_iwarp(&mut server, &s) { (WcStatus::SUCCESS, [7; 8]) } else { (WcStatus::REM_ACCESS_ERR, [0; 8]) };
    assert_eq!(seen, expected);
}

/// A loop that waits for a peer's write ends, with a copy and with a flag: this program is compiled with
/// optimisation.
pub(crate) fn flags() {
    let Pair { client: _client, server: _server, mut c, s, .. } = Pair::connected();
    let shared = register(&s, 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let remote = |offset| Remote { addr: shared.addr() + offset, rkey: shared.rkey() };
    let mut number = register(&c, 1, Access::empty());
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| {
            let mut flag = [0];
            while flag[0] == 0 {
                shared.read(0, &mut flag).expect("inside");
            }
        });
        let loaded = scope.spawn(|| while shared.load_acquire::<u64>(8) != Ok(7) {});
        let relaxed = scope.spawn(|| while shared.load_relaxed::<u64>(16) != Ok(9) {});
        std::thread::sleep(Duration::from_millis(100));
        for (offset, value) in [(0, 1), (8, 7_u64), (16, 9)] {
            number.store_release(0, value).expect("inside");
            c.qp.post_send(SendWr::write(value, number.sge(0..8), remote(offset))).expect("post_write");
            success(polled(&mut c.cq), value, WcOpcode::RDMA_WRITE);
        }
        let until = Instant::now() + LIMIT;
        while ![&copied, &loaded, &relaxed].into_iter().all(|thread| thread.is_finished()) {
            // Exits, because the scope would wait for a thread that loops for ever.
            if Instant::now() > until {
                println!("a loop does not see what a peer has written");
                std::process::exit(101);
            }
        }
    });
    assert_eq!(
        number.load_acquire::<u32>(4).map(u64::from),
        Ok(9_u64 >> if cfg!(target_endian = "little") { 32 } else { 0 })
    );
    assert_eq!(number.load_acquire::<u64>(4), Err(Errno::EINVAL));
    assert_eq!(number.store_release(PAGE - 4, 1_u64), Err(Errno::EINVAL));
}

/// Slices of memory that is mapped to be read.
pub(crate) fn slices() {
    let Pair { client: _client, server: _server, s, .. } = Pair::connected();
    let (page, _) = crate::memory::mapped_read_only(PAGE);
    let mut fixed = s.pd.register(page, Access::REMOTE_READ).expect("register");
    assert_eq!(fixed.slice_mut().map(|slice| slice.len()), Err(Errno::EACCES));
    assert_eq!((fixed.slice().map(<[u8]>::len), fixed.load_acquire::<u32>(0)), (Ok(PAGE), Ok(0)));
    assert_eq!(fixed.store_release(0, 1_u32), Err(Errno::EACCES));
}

/// Handles outlive the id and the device that they came from.
pub(crate) fn outliving() {
    let Pair { client: _client, mut server, mut s, .. } = Pair::connected();
    let late = register(&s, 1, Access::LOCAL_WRITE);
    s.qp.post_recv(9, late.sge(0..1)).expect("post_recv");
    server.ok(&Call::Destroy { id: s.id });
    drop(server);
    assert_eq!(s.qp.state(), Ok(QpState::ERR));
    let flushed = polled(&mut s.cq);
    assert_eq!((flushed.wr_id, flushed.status), (9, WcStatus::WR_FLUSH_ERR));
    // Any order of dropping is right.
    let End { pd, cq, qp, .. } = s;
    drop(pd);
    drop(cq);
    drop(late);
    drop(qp);
}
