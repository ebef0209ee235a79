//! Generates programs with steps of the data path: a connection, then work requests of both sides.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::address::{Endpoint, Ip};
use crate::data::{DataStep, Key, MEMORY, Operation, Request};
use crate::program::{Action, CHILDREN, Level, Network, Offer, Program, SideName, Slot, Space, Step};

/// The maximum number of random steps.
const LENGTH: usize = 60;

/// The id of the connection at a side.
const fn id_of(side: SideName) -> Slot {
    match side {
        SideName::A => 0,
        SideName::B => CHILDREN,
    }
}

/// Generates the program of a seed. All its calls are made to the bare device. It uses the QPs of that device.
#[must_use]
pub fn program(seed: u64) -> Program {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let shared = [rng.random_ratio(1, 4), rng.random_ratio(1, 4)];
    let mut steps = connection(shared);
    // Most messages find a receive.
    for side in [SideName::A, SideName::B] {
        for _ in 0..rng.random_range(0..6) {
            let step = DataStep::Receive { at: rng.random_range(0..MEMORY - 16), len: 16 };
            steps.push((side, Action::Data { id: id_of(side), step }));
        }
    }
    for _ in 0..rng.random_range(10..LENGTH) {
        let side = if rng.random_ratio(1, 2) { SideName::A } else { SideName::B };
        let id = id_of(side);
        let action = match rng.random_range(0..120) {
            0 | 1 => Action::Disconnect { id },
            2 => Action::Data { id, step: DataStep::Detach },
            _ => Action::Data { id, step: step(&mut rng) },
        };
        steps.push((side, action));
    }
    for side in [SideName::A, SideName::B] {
        for step in [DataStep::Poll, DataStep::Look, DataStep::Deregister] {
            steps.push((side, Action::Data { id: id_of(side), step }));
        }
    }
    let steps = steps.into_iter().map(|(side, action)| Step { side, action, races: false }).collect();
    Program { seed, level: Level::Device, network: Network::Roce, steps }
}

/// Connects the first id of side a to a child of side b; the sides of `shared` have an SRQ. Without retries a message
/// finds a receive or fails at once.
fn connection(shared: [bool; 2]) -> Vec<(SideName, Action)> {
    use SideName::{A, B};
    let offer = |qp| Offer { qp, serves: 4, starts: 4, rnr: 0, data: 0 };
    let read = Action::Read { channel: 0, most: None };
    let attach = |id, shared| Action::Data { id, step: if shared { DataStep::AttachShared } else { DataStep::Attach } };
    let (at, open) = (Endpoint(Ip::OfB, 1), Action::OpenChannel { channel: 0, explicit_acks: false });
    let create = Action::Create { id: 0, channel: Some(0), space: Space::Tcp };
    vec![
        (B, open),
        (B, create),
        (B, Action::Bind { id: 0, at }),
        (B, Action::Listen { id: 0, backlog: 8 }),
        (A, open),
        (A, create),
        (A, Action::ResolveAddr { id: 0, src: None, dst: at }),
        (A, read),
        (A, Action::ResolveRoute { id: 0 }),
        (A, read),
        (A, attach(0, shared[0])),
        (A, Action::Connect { id: 0, offer: offer(0) }),
        (B, read),
        (B, attach(CHILDREN, shared[1])),
        (B, Action::Accept { id: CHILDREN, offer: offer(1) }),
        (A, read),
        (B, read),
    ]
}

fn step(rng: &mut ChaCha8Rng) -> DataStep {
    // A range that is mostly inside the memory.
    let mut range = || (rng.random_range(0..MEMORY - 14), rng.random_range(0..=16_u8));
    let ((at, len), (to, _)) = (range(), range());
    match rng.random_range(0..160) {
        0..28 => DataStep::Receive { at, len: if rng.random_ratio(1, 8) { len } else { 16 } },
        28..72 => DataStep::Post(request(rng, at, len, to)),
        72..86 => DataStep::Poll,
        86..93 => DataStep::Look,
        93..97 => DataStep::Deregister,
        97..100 => DataStep::Register,
        100..104 => DataStep::ReceiveAll { at, len: 16, count: rng.random_range(0..4) },
        104..109 => DataStep::PostAll { request: request(rng, at, len, to), count: rng.random_range(0..4) },
        109..113 => DataStep::Reregister { write: rng.random_ratio(2, 3) },
        113..119 => DataStep::AllocWindow,
        119..126 => DataStep::Bind { at, len, write: rng.random_ratio(2, 3) },
        126..129 => DataStep::Invalidate,
        129 => DataStep::DeallocWindow,
        130..138 => DataStep::ReceiveBlock,
        138..150 => DataStep::PostBlock(request(rng, 0, len, to)),
        150..153 => DataStep::Resize { depth: rng.random_range(0..40) },
        153..155 => DataStep::Share,
        155..158 => DataStep::BindBlock { write: rng.random_ratio(2, 3) },
        _ => DataStep::TakeBlock,
    }
}

fn request(rng: &mut ChaCha8Rng, at: u8, len: u8, to: u8) -> Request {
    let operation = match rng.random_range(0..14) {
        0..3 => Operation::Send,
        3..5 => Operation::SendImm,
        5..8 => Operation::Write,
        8..10 => Operation::WriteImm,
        10..12 => Operation::Read,
        12 => Operation::CompareSwap,
        _ => Operation::FetchAdd,
    };
    let atomic = matches!(operation, Operation::CompareSwap | Operation::FetchAdd);
    // Atomics need 8 bytes, mostly aligned ones.
    let (len, to) = if atomic { (8, if rng.random_ratio(1, 8) { to } else { to & !7 }) } else { (len, to) };
    let (key, to) = match rng.random_range(0..25) {
        0 => (Key::Wrong, to),
        // Mostly inside the window.
        1..6 => (Key::Window, to & 7),
        _ => (Key::Mr, to),
    };
    Request { operation, at, len, to, key, signaled: rng.random_ratio(3, 4) }
}
