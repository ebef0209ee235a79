//! A hostile NVMe target against the parts of `cmid-nvme` without I/O: any bytes as responses, structures and private data, in
//! any order with the completions of sends.
//!
//! Whatever it sends, a command ends at most once, and a command that has not ended is still there at the end.

use std::collections::BTreeSet;
use std::time::Duration;

use cmid_nvme::controller::{Controller, DISCOVERY_NQN, Settings, Todo};
use cmid_nvme::queue::Queue;
use cmid_nvme::wire::{
    AsyncEvent, CmReject, CmReply, CmRequest, Cqe, DiscoveryLog, IdController, IdNamespace, Sqe, Status, namespace_list,
};
use cmid_proto::Time;

use crate::input::Input;
use crate::say::say;

/// Runs the input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => structures(&mut input),
        1 => queue(&mut input),
        _ => controller(&mut input),
    }
}

/// Any bytes, mostly of a length that fits.
fn bytes(input: &mut Input<'_>, fits: usize) -> Vec<u8> {
    let len = if input.once_in(4) { input.below(2 * fits) } else { fits };
    let mut bytes = vec![0; len];
    // Few bytes at any place, so that short inputs reach fields far behind.
    for _ in 0..input.below(16) {
        let (at, byte) = (input.below(len.max(1)), input.any::<u8>());
        if let Some(to) = bytes.get_mut(at) {
            *to = byte;
        }
    }
    bytes
}

/// What is read from them is within the limits that the reader promises, or an error that names the field.
fn structures(input: &mut Input<'_>) {
    while !input.is_over() {
        let error = match input.below(8) {
            0 => Cqe::decode(&bytes(input, Cqe::LEN))
                .map(|cqe| say(|| format!("{cqe:?}, {}", AsyncEvent::of(cqe.result))))
                .err(),
            1 => Sqe::decode(&bytes(input, Sqe::LEN)).map(|sqe| assert_eq!(Sqe::decode(&sqe.encode()), Ok(sqe))).err(),
            2 => IdController::decode(&bytes(input, 4096)).map(|id| assert!(id.data_in_capsule() < 1 << 20)).err(),
            3 => IdNamespace::decode(&bytes(input, 4096)).map(|id| assert!(id.block() <= 1 << 16)).err(),
            4 => namespace_list(&bytes(input, 4096)).map(|list| assert!(list.len() <= 1024)).err(),
            5 => DiscoveryLog::decode(&bytes(input, 3072))
                .map(|log| assert!(log.entries.len() <= 5 && log.len() <= 1025 << 10))
                .err(),
            6 => CmReply::decode(&bytes(input, 32)).map(|reply| assert!(reply.receives >= 2)).err(),
            _ => {
                let reason = CmReject::decode(&bytes(input, 4)).map(|reason| reason.to_string());
                say(|| {
                    format!("a reject {reason:?}, a request {:?}", CmRequest::decode(&bytes(input, CmRequest::LEN)))
                });
                None
            }
        };
        if let Some(error) = error {
            assert!(!error.to_string().is_empty());
            say(|| error.to_string());
        }
    }
}

/// Commands, completions of their sends, and responses to them and to others.
fn queue(input: &mut Input<'_>) {
    let mut queue = Queue::new(input.below(12) as u16);
    let (mut begun, mut outstanding, mut cids) = (0_u32, BTreeSet::new(), Vec::new());
    while !input.is_over() {
        let cid = match input.pick(&cids) {
            Some(cid) if !input.once_in(8) => cid,
            _ => input.any(),
        };
        let ended = match input.below(4) {
            0 => {
                let had_room = queue.has_room();
                let result = queue.begin(begun, Time::NEVER);
                assert_eq!(result.is_ok(), had_room);
                if let Ok(cid) = result {
                    if input.once_in(2) {
                        queue.posted_unsignaled(cid);
                    }
                    outstanding.insert(begun);
                    cids.push(cid);
                }
                begun += 1;
                continue;
            }
            1 => queue.sent(cid),
            _ => {
                let sq_head = if input.once_in(4) { input.any() } else { input.below(12) as u16 };
                queue.answered(Cqe { result: 0, sq_head, cid, status: Status(input.any()) })
            }
        };
        match ended {
            Ok(None) => {}
            Ok(Some(done)) => {
                assert!(outstanding.remove(&done.tag), "{} has ended twice", done.tag);
                assert_eq!(done.response.cid, cid);
                assert!(done.slot < queue.slots());
            }
            Err(error) => say(|| error.to_string()),
        }
        assert_eq!(queue.outstanding(), outstanding.len());
    }
    let left: BTreeSet<u32> = queue.drain().into_iter().collect();
    assert_eq!(left, outstanding);
}

/// A controller that is brought up by any answers: each step is one that can be done, and the steps end.
fn controller(input: &mut Input<'_>) {
    let queues = input.below(5) as u16;
    let subsystem = if input.once_in(4) { DISCOVERY_NQN } else { "nqn.test" };
    let (mut controller, mut todo) = Controller::new(Settings {
        subsystem: subsystem.to_owned(),
        host: "nqn.host".to_owned(),
        host_id: [1; 16],
        queues,
        size: input.below(2000) as u16,
        keep_alive: Duration::from_secs(1),
    });
    let mut now = Time::ZERO;
    while !input.is_over() {
        let next = match todo {
            Todo::Live => {
                assert!(controller.is_live() && controller.queues() <= queues);
                let limit = 1 << 17;
                assert!((1..=limit).contains(&controller.transfer_max(limit)));
                return;
            }
            Todo::Dial(CmRequest { qid, size }) => {
                assert!(qid <= queues && size >= 2);
                let reply = CmReply::decode(&bytes(input, 4));
                controller.connected(reply.unwrap_or(CmReply { receives: 32 }))
            }
            Todo::Wait(until) => {
                assert!(until > now);
                now = until;
                controller.woken()
            }
            Todo::Send { qid, .. } => {
                assert!(qid <= queues);
                let status = if input.once_in(8) { Status(input.any()) } else { Status::SUCCESS };
                let response = Cqe { result: input.any(), sq_head: 0, cid: 0, status };
                controller.answered(response, &bytes(input, 4096), now)
            }
        };
        match next {
            Ok(next) => todo = next,
            Err(error) => {
                say(|| format!("{error}, final: {}", error.is_final()));
                return;
            }
        }
    }
}
