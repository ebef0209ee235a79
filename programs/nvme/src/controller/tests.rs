//! A controller is brought up, by answers that the tests choose.

use super::*;

fn settings(queues: u16) -> Settings {
    Settings {
        subsystem: "nqn.test".into(),
        host: "nqn.host".into(),
        host_id: [1; 16],
        queues,
        size: 128,
        keep_alive: Duration::from_secs(5),
    }
}

fn answer(result: u64) -> Cqe {
    Cqe { result, sq_head: 0, cid: 0, status: Status::SUCCESS }
}

fn identity(mdts: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[77] = mdts;
    bytes[93] = 1;
    bytes[1792] = 4;
    bytes
}

/// The queue and the opcode, with the type of a command of fabrics, or the queue that is dialled.
fn told(todo: &Todo) -> String {
    match todo {
        Todo::Dial(request) => format!("dial {} with {}", request.qid, request.size),
        Todo::Send { qid, command } => format!("{qid}: {:#x} {}", command.entry.opcode, command.entry.nsid),
        Todo::Wait(until) => format!("wait until {until}"),
        Todo::Live => "live".into(),
    }
}

const CAP: u64 = 0x1e << 24 | 63;
const REPLY: CmReply = CmReply { receives: 32 };

/// Brings a controller up to the answer to CAP.
fn enabling() -> Controller {
    let (mut controller, _dial) = Controller::new(settings(2));
    let _connect = controller.connected(REPLY).expect("a step");
    for result in [7, CAP] {
        let _next = controller.answered(answer(result), &[], Time::ZERO).expect("a step");
    }
    controller
}

#[test]
fn a_controller_is_brought_up_in_the_order_of_linux() {
    let (mut controller, todo) = Controller::new(settings(2));
    let mut steps = vec![told(&todo), told(&controller.connected(REPLY).expect("a step"))];
    let identity = identity(5);
    for result in [7, CAP, 0, 0] {
        steps.push(told(&controller.answered(answer(result), &[], Time::ZERO).expect("a step")));
    }
    steps.push(told(&controller.woken().expect("a step")));
    for (result, data) in [(1, &[][..]), (0, &identity), (0, &[]), (1 << 16 | 7, &[])] {
        steps.push(told(&controller.answered(answer(result), data, Time::ZERO).expect("a step")));
    }
    for _ in 0..2 {
        steps.push(told(&controller.connected(REPLY).expect("a step")));
        steps.push(told(&controller.answered(answer(7), &[], Time::ZERO).expect("a step")));
    }
    let expected = [
        "dial 0 with 32",
        "0: 0x7f 1",
        "0: 0x7f 4",
        "0: 0x7f 0",
        "0: 0x7f 4",
        "wait until 0.100000000 s",
        "0: 0x7f 4",
        "0: 0x6 0",
        "0: 0x9 0",
        "0: 0x9 0",
        "dial 1 with 64",
        "1: 0x7f 1",
        "dial 2 with 64",
        "2: 0x7f 1",
        "live",
    ];
    assert_eq!(steps, expected);
    assert_eq!((controller.cntlid(), controller.queues(), controller.transfer_max(1 << 20)), (7, 2, 1 << 17));
}

#[test]
fn a_discovery_service_has_no_io_queues() {
    let (mut controller, _dial) = Controller::new(Settings { subsystem: DISCOVERY_NQN.into(), ..settings(4) });
    let _connect = controller.connected(REPLY).expect("a step");
    let mut last = Todo::Wait(Time::ZERO);
    for (result, data) in [(7, vec![]), (CAP, vec![]), (0, vec![]), (1, vec![]), (0, identity(0)), (0, vec![])] {
        last = controller.answered(answer(result), &data, Time::ZERO).expect("a step");
    }
    assert_eq!((last, controller.is_live(), controller.queues()), (Todo::Live, true, 0));
}

#[test]
fn a_refused_command_ends_the_attempt_with_its_name() {
    let (mut controller, _dial) = Controller::new(settings(1));
    let _connect = controller.connected(REPLY).expect("a step");
    let refused = Cqe { status: Status::CONNECT_INVALID_PARAMETERS, ..answer(0) };
    let error = controller.answered(refused, &[], Time::ZERO).expect_err("a refusal");
    assert!(error.is_final() && error.to_string().starts_with("Connect: invalid parameters"), "{error}");
}

#[test]
fn a_controller_that_fails_or_does_not_become_ready_ends_the_attempt() {
    let mut controller = enabling();
    let _ready = controller.answered(answer(0), &[], Time::ZERO).expect("a step");
    let mut failing = controller.clone();
    assert_eq!(failing.answered(answer(2), &[], Time::ZERO), Err(ControllerError::Fatal));
    let late = Time::ZERO.after(Duration::from_secs(15));
    let error = controller.answered(answer(0), &[], late).expect_err("an error");
    assert_eq!(error, ControllerError::NotReady(Duration::from_secs(15)));
}

#[test]
fn a_response_or_a_connection_that_nobody_waits_for_is_refused() {
    let (mut controller, _dial) = Controller::new(settings(1));
    assert_eq!(controller.answered(answer(0), &[], Time::ZERO), Err(ControllerError::Unexpected));
    assert_eq!(controller.woken(), Err(ControllerError::Unexpected));
    assert_eq!(enabling().connected(REPLY), Err(ControllerError::Unexpected));
}

#[test]
fn a_controller_that_grants_more_queues_gets_as_many_as_were_asked_for() {
    let mut controller = enabling();
    for (result, data) in [(0, vec![]), (1, vec![]), (0, identity(0)), (0, vec![])] {
        let _next = controller.answered(answer(result), &data, Time::ZERO).expect("a step");
    }
    let todo = controller.answered(answer(u64::from(u32::MAX)), &[], Time::ZERO).expect("a step");
    assert_eq!((told(&todo), controller.queues()), ("dial 1 with 64".into(), 2));
}
