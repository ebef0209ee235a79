//! Generates programs with steps of the data path: a connection, then work requests of both sides.

use cmid_model::Input;
use cmid_proto::PortSpace;

use crate::address::{Endpoint, Ip};
use crate::data_step::{DataStep, Key, MEMORY, Operation, Request};
use crate::generate::Bytes;
use crate::program::{Action, CHILDREN, IdCall, Level, Network, Offer, Program, SideName, Slot, Step};

/// The id of the connection at a side.
const fn id_of(side: SideName) -> Slot {
    match side {
        SideName::A => 0,
        SideName::B => CHILDREN,
    }
}

/// The program of these bytes. All its calls are made to the bare device. It uses the QPs of that device.
pub(crate) fn program(network: Network, seed: u64, (bytes, _, once): &Bytes) -> Program {
    let mut input = Input::graded(once);
    let shared = [input.once_in(4), input.once_in(4)];
    // A device rounds a number of 3 up.
    let mut reads_at_once = || [4, 4, 3, 2, 1, 0][input.below(6)];
    let serves = [reads_at_once(), reads_at_once()];
    let starts = [serves[1], serves[0]].map(|serves| serves.min(reads_at_once()));
    let inline = [input.once_in(3), input.once_in(3)].map(|is_inline| if is_inline { 8 } else { 0 });
    let side = |side: usize| Side {
        offer: Offer { qp: side as u8, serves: serves[side], starts: starts[side], rnr: 0, data: 0 },
        attach: DataStep::Attach { shares_receives: shared[side], inline: inline[side] },
    };
    let mut steps = connection([side(0), side(1)]);
    // Most messages find a receive.
    for side in [SideName::A, SideName::B] {
        if input.once_in(2) {
            let bind = DataStep::Bind { at: 8 * input.below(3) as u8, len: 16, write: true };
            steps.extend([DataStep::AllocWindow, bind].map(|step| (side, Action::On(id_of(side), IdCall::Data(step)))));
        }
        for _ in 0..2 + input.below(6) {
            let at = input.below(usize::from(MEMORY) - 16) as u8;
            let step = DataStep::Receive { at, len: 16, split: input.once_in(4) };
            steps.push((side, Action::On(id_of(side), IdCall::Data(step))));
        }
    }
    for bytes in bytes {
        let mut input = Input::graded(bytes);
        let side = [SideName::B, SideName::A][input.below(2)];
        let id = id_of(side);
        let action = match input.below(120) {
            0..117 => Action::On(id, IdCall::Data(step(network, &mut input))),
            117 => Action::On(id, IdCall::Data(DataStep::Detach)),
            _ => Action::On(id, IdCall::Disconnect),
        };
        steps.push((side, action));
    }
    for side in [SideName::A, SideName::B] {
        for step in [DataStep::TakeNotifications, DataStep::Poll, DataStep::Look, DataStep::Deregister] {
            steps.push((side, Action::On(id_of(side), IdCall::Data(step))));
        }
    }
    let steps = steps.into_iter().map(|(side, action)| Step { side, action, races: false }).collect();
    Program { seed, level: Level::Device, network, steps }
}

/// What a side connects with. Without retries a message finds a receive or fails at once.
struct Side {
    offer: Offer,
    attach: DataStep,
}

/// Connects the first id of side a to a child of side b.
fn connection([active, passive]: [Side; 2]) -> Vec<(SideName, Action)> {
    use SideName::{A, B};
    let read = Action::Read { channel: 0, most: None };
    let (at, open) = (Endpoint(Ip::OfB, 1), Action::OpenChannel { channel: 0, explicit_acks: false });
    let create = Action::Create { id: 0, channel: Some(0), space: PortSpace::Tcp };
    vec![
        (B, open),
        (B, create),
        (B, Action::On(0, IdCall::Bind(at))),
        (B, Action::On(0, IdCall::Listen(8))),
        (A, open),
        (A, create),
        (A, Action::On(0, IdCall::ResolveAddr { src: None, dst: at })),
        (A, read),
        (A, Action::On(0, IdCall::ResolveRoute)),
        (A, read),
        (A, Action::On(0, IdCall::Data(active.attach))),
        (A, Action::On(0, IdCall::Connect(active.offer))),
        (B, read),
        (B, Action::On(CHILDREN, IdCall::Data(passive.attach))),
        (B, Action::On(CHILDREN, IdCall::Accept(passive.offer))),
        (A, read),
        (B, read),
    ]
}

fn step(network: Network, input: &mut Input<'_>) -> DataStep {
    let request = |input: &mut Input<'_>, at, len, to| of_network(network, request(input, at, len, to));
    // A range that is mostly inside the memory.
    let mut range = || (input.below(usize::from(MEMORY) - 14) as u8, input.below(17) as u8);
    let ((at, len), (to, _)) = (range(), range());
    match input.below(168) {
        0..28 => {
            let len = if input.once_in(8) { len } else { 16 };
            DataStep::Receive { at, len, split: input.once_in(4) }
        }
        28..72 => DataStep::Post(request(input, at, len, to)),
        72..86 => DataStep::Poll,
        86..93 => DataStep::Look,
        93..97 => DataStep::Deregister,
        97..100 => DataStep::Register,
        100..104 => DataStep::ReceiveAll { at, len: 16, count: input.below(4) as u8 },
        104..109 => DataStep::PostAll { request: request(input, at, len, to), count: input.below(4) as u8 },
        109..113 => DataStep::Reregister { read: input.below(3) > 0, write: input.below(3) > 0 },
        113..119 => DataStep::AllocWindow,
        119..126 => DataStep::Bind { at, len, write: input.below(3) > 0 },
        126..129 => DataStep::Invalidate,
        129 => DataStep::DeallocWindow,
        130..138 => DataStep::ReceiveBlock,
        138..150 => DataStep::PostBlock(request(input, 0, len, to)),
        150..153 => DataStep::Resize { depth: input.below(40) as u8 },
        153..155 => DataStep::Share,
        155..158 => DataStep::BindBlock { write: input.below(3) > 0 },
        158..160 => DataStep::TakeBlock,
        160..164 => DataStep::Arm { solicited: input.once_in(2) },
        _ => DataStep::TakeNotifications,
    }
}

/// iWARP has neither immediate data nor atomic operations. Most programs are to do something there.
fn of_network(network: Network, request: Request) -> Request {
    let operation = match request.operation {
        Operation::Send | Operation::SendImm => Operation::Send,
        Operation::Write | Operation::WriteImm => Operation::Write,
        Operation::Read | Operation::FetchAdd => Operation::Read,
        rest @ (Operation::SendInvalidate | Operation::CompareSwap) => rest,
    };
    if network.is_roce() { request } else { Request { operation, ..request } }
}

fn request(input: &mut Input<'_>, at: u8, len: u8, to: u8) -> Request {
    let operation = match input.below(15) {
        0..3 => Operation::Send,
        3..5 => Operation::SendImm,
        5..8 => Operation::Write,
        8..10 => Operation::WriteImm,
        10..12 => Operation::Read,
        12 => Operation::CompareSwap,
        13 => Operation::FetchAdd,
        _ => Operation::SendInvalidate,
    };
    let atomic = matches!(operation, Operation::CompareSwap | Operation::FetchAdd);
    // Atomics need 8 bytes, mostly aligned ones.
    let (len, to) = if atomic { (8, if input.once_in(8) { to } else { to & !7 }) } else { (len, to) };
    let (key, to) = match input.below(40) {
        0 => (Key::Wrong, to),
        1..7 => (Key::Window, to & 7),
        _ if operation == Operation::SendInvalidate && !input.once_in(8) => (Key::Window, 0),
        _ => (Key::Mr, to),
    };
    let (signaled, fenced, solicited, split) =
        (input.below(4) > 0, input.once_in(8), input.once_in(4), input.once_in(6));
    Request { operation, at, len, to, key, signaled, fenced, solicited, split }
}
