//! The list of behaviours observed on Linux 6.1 and 6.12 with soft-RoCE and librdmacm 44, and references to tests
//! outside of this suite that show a behaviour.

/// An observed behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Its number. Missing numbers were merged into their neighbours. Behaviours from 80 on are about memory.
    /// Behaviours from 84 to 126 are the table lines and rules found about PDs, MRs and `ibv_rereg_mr`, in their order;
    /// those after them are in the order of their arrival.
    pub number: u8,
    /// Its subject, in a line.
    pub about: &'static str,
    /// Tests and programs outside of this suite that show the behaviour too, or the part that a driver cannot show:
    /// `path::function`.
    pub elsewhere: &'static [&'static str],
    /// A deliberate difference from the behaviour, or the part that cannot be requested through a driver.
    pub remark: &'static str,
}

const fn behaviour(number: u8, about: &'static str) -> Behaviour {
    Behaviour { number, about, elsewhere: &[], remark: "" }
}

impl Behaviour {
    const fn also(self, elsewhere: &'static [&'static str]) -> Behaviour {
        Behaviour { elsewhere, ..self }
    }

    const fn but(self, remark: &'static str) -> Behaviour {
        Behaviour { remark, ..self }
    }
}

/// All behaviours.
pub const BEHAVIOURS: &[Behaviour] = &[
    behaviour(1, "connect with QPs"),
    behaviour(2, "disconnect, answered, time wait"),
    behaviour(3, "disconnect answered by a destroy"),
    behaviour(4, "disconnect answered before it is read"),
    behaviour(6, "connect without QPs, establish"),
    behaviour(7, "parameters are mirrored and clamped"),
    behaviour(8, "default parameters are the device's maxima"),
    behaviour(9, "destroy while established"),
    behaviour(10, "a process ends while established")
        .but("a process is killed where there are processes; besides, a driver is dropped, which closes its channels"),
    behaviour(11, "nobody listens"),
    behaviour(12, "a listener on another address"),
    behaviour(13, "reject with private data; nothing else is possible afterwards")
        .but("the core refuses the second reject and the accept; the bare device answers the same EINVAL"),
    behaviour(14, "reject because of enhanced connection establishment"),
    behaviour(15, "destroy of a request rejects it"),
    behaviour(16, "private data too long")
        .but("refused by the core, so that the request stands; the kernel's answer, past the core, rejects the peer"),
    behaviour(17, "a second accept")
        .also(&[
            "sim/tests/scenarios/refusals.rs::behaviour_17_a_second_accept_kills_the_connection_and_stalls_destroy",
        ])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    behaviour(19, "reject before the answer")
        .also(&["sim/tests/scenarios/refusals.rs::behaviour_19_a_reject_before_the_answer_stalls_destroy"])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    behaviour(20, "reject after the answer")
        .also(&["sim/tests/scenarios/refusals.rs::behaviour_20_a_late_reject_stalls_destroy"])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    behaviour(21, "the client rejects the answer"),
    behaviour(22, "depths beyond the device's"),
    behaviour(23, "the client goes before the accept"),
    behaviour(24, "the client goes before its request is read"),
    behaviour(25, "the client goes without reading the answer"),
    behaviour(26, "the client goes after reading the answer"),
    behaviour(27, "the server goes before the client reads the answer"),
    behaviour(29, "a host that does not answer").also(&["sim/tests/scenarios/vanishing.rs::behaviour_29_nobody_there"]),
    behaviour(30, "the server never reads")
        .also(&["sim/tests/scenarios/vanishing.rs::behaviour_30_the_server_never_answers"]),
    behaviour(31, "the client never reads the answer")
        .also(&["sim/tests/scenarios/vanishing.rs::behaviour_31_the_client_never_reads_the_answer"]),
    behaviour(32, "a disconnect is never answered")
        .also(&["sim/tests/scenarios/vanishing.rs::behaviour_32_a_disconnect_is_never_answered"]),
    behaviour(33, "a full backlog makes clients wait").also(&[
        "sim/tests/scenarios/vanishing.rs::behaviour_33_a_full_backlog_makes_clients_wait",
        "sim/tests/scenarios/vanishing.rs::behaviour_33_the_third_waits_twice_if_the_second_is_read_late",
    ]),
    behaviour(34, "a second listen fails and shrinks the backlog")
        .but("refused by the core, so that the backlog stays; what the kernel does is shown past the core"),
    behaviour(35, "a listener goes with unread requests, not with those that were read"),
    behaviour(36, "a neighbour's link address changes"),
    behaviour(37, "a QP number is used again"),
    behaviour(38, "the same QP number on both sides"),
    behaviour(39, "bind").but("AF_UNIX, NULL and unknown port spaces cannot be written down"),
    behaviour(40, "listen; an address that is used twice"),
    behaviour(41, "resolve without a route, and out of order")
        .but("a route without time: past the core, which gives at least 1 ms"),
    behaviour(42, "nobody has the address")
        .also(&["sim/tests/scenarios/addresses.rs::behaviour_42_nobody_has_the_address"])
        .but("time-out 0 cannot be asked for: the core refuses a deadline that is over"),
    behaviour(44, "the loopback address resolves and has no route"),
    behaviour(45, "destroy while resolving"),
    behaviour(46, "reading an empty channel")
        .but("EAGAIN is \"no event\"; all channels are non-blocking, so that no read can be interrupted (EINTR)"),
    behaviour(47, "a channel is closed with ids on it")
        .also(&["sim/tests/scenarios/channels.rs::behaviour_47_closing_a_channel_ends_what_is_on_it"])
        .but("refused by the core; all channels of a driver are closed when it is dropped"),
    behaviour(48, "destroy waits for acks"),
    behaviour(49, "a request counts on its listener"),
    behaviour(50, "migrate in every state"),
    behaviour(51, "migrate with an unread event")
        .also(&[
            "tests/kernel/src/lost_wakeup.rs::lost",
            "sim/tests/scenarios/channels.rs::behaviour_51_a_moved_event_wakes_nobody",
        ])
        .but("the drivers read what moved without a wake-up; that the kernel gives none is shown with bare calls"),
    behaviour(52, "migrate waits for acks").but("nothing blocks: the last ack starts it, and its end is an event"),
    behaviour(53, "migrate to the same channel: its events go last"),
    behaviour(54, "a listener migrates with an unread request")
        .but("the core loses nothing; what the kernel does is shown past the core"),
    behaviour(56, "a synchronous listener migrates with an unread request")
        .but("the core loses nothing; NULL is never passed to librdmacm, so that its synchronous mode does not occur"),
    behaviour(57, "migrate errors")
        .also(&["sim/tests/scenarios/channels.rs::behaviour_57_migrate_errors"])
        .but("foreign and closed descriptors cannot be named: channels are keys"),
    behaviour(58, "a new id migrates before its accept"),
    behaviour(59, "a new id is accepted in synchronous mode"),
    behaviour(60, "a whole life in synchronous mode"),
    behaviour(61, "synchronous connects that are refused"),
    behaviour(62, "a dead address in synchronous mode"),
    behaviour(63, "a synchronous connect without a QP"),
    behaviour(64, "the peer disconnected earlier")
        .but("a second disconnect waits for nothing; librdmacm's returns with whatever event comes next"),
    behaviour(65, "the client goes during a synchronous accept"),
    behaviour(67, "a synchronous listener is destroyed after its request was rejected")
        .but("does not hang: librdmacm's would wait for an ack that nobody can give"),
    behaviour(68, "a synchronous disconnect of what is not connected")
        .but("refused by the core, where librdmacm's would hang; the kernel's answer is shown past the core"),
    behaviour(69, "an id in synchronous mode on a non-blocking channel"),
    behaviour(70, "datagrams: nobody listens"),
    behaviour(71, "datagrams: rejected"),
    behaviour(72, "datagrams: answered").but(
        "too long an answer and a disconnect are refused by the core; what the kernel does is shown past the core",
    ),
    behaviour(73, "datagrams: a full backlog, a listener or a request that is destroyed"),
    behaviour(74, "datagrams: a silent server")
        .also(&["sim/tests/scenarios/datagrams.rs::behaviour_74_a_silent_server"]),
    behaviour(75, "multicast groups")
        .but("join_ex errors cannot be written down; the same group twice is refused by the core"),
    behaviour(76, "notify").but("events other than COMM_EST cannot be written down"),
    behaviour(77, "notify of a path migration breaks the connection").but("not applicable: there is no request for it"),
    behaviour(78, "the device goes").but("after DEVICE_REMOVAL the core answers itself, with the same ENXIO"),
    behaviour(79, "a bond fails over"),
    behaviour(80, "ibv_reg_mr: rights and addresses that cannot be registered")
        .also(&[
            "tests/kernel/src/device/registration.rs::bad_memory",
            "tests/kernel/src/device/registration.rs::bad_rights",
            "tests/kernel/src/device/registration.rs::lock_limit",
        ])
        .but("remote rights without local write are refused before; memory that is not mapped takes a raw buffer"),
    behaviour(81, "ibv_rereg_mr of a provider without it: ERR_INPUT, or ERR_CMD and EOPNOTSUPP; nothing changes")
        .but("bad arguments are refused before the library is asked"),
    behaviour(82, "the kernel's rxe re-registers: the old PD deallocates, the new one does not, rights change")
        .also(&["tests/kernel/src/rereg/domains.rs::moved"])
        .but("Linux 6.1 cannot; 6.12 is asked by a library for tests, as rdma-core does not"),
    behaviour(83, "a bound window: the MR and the PD stay until it is gone"),
    behaviour(84, "ibv_dealloc_pd: EBUSY while anything refers to the PD, and it lives on")
        .but("refused with how many things do, where the kernel would say EBUSY"),
    behaviour(85, "librdmacm's default PD").but("not applicable: a QP is always made with a PD of the application's"),
    behaviour(86, "ibv_reg_mr: the fields of an MR; rxe's keys are equal"),
    behaviour(87, "access 0 is legal: local reads only"),
    behaviour(88, "ibv_reg_mr: optional rights are masked"),
    behaviour(89, "rdma_reg_msgs, rdma_reg_read and rdma_reg_write")
        .but("not applicable: they are ibv_reg_mr with rights that one writes down"),
    behaviour(90, "rereg stage 1: only plain MRs").but("not applicable: no other MRs can be made"),
    behaviour(91, "rereg stage 2: unknown flags")
        .also(&["proto/tests/memory/arguments.rs::the_flags_are_those_of_what_is_to_change"])
        .but("not applicable to a driver: flags follow from what is to change"),
    behaviour(92, "rereg stage 3: other memory that is NULL or empty"),
    behaviour(93, "rereg stage 4: rights without their flag")
        .also(&["proto/tests/memory/arguments.rs::the_flags_are_those_of_what_is_to_change"])
        .but("as behaviour 91"),
    behaviour(94, "rereg stage 5: ERR_DONT_FORK_NEW, the old registration is valid"),
    behaviour(95, "rereg stage 6: ERR_CMD, valid or not is up to errno and provider"),
    behaviour(96, "rereg stage 6: ERR_CMD_AND_DO_FORK_NEW"),
    behaviour(97, "rereg stages 7 and 9: success, the fields are the new ones"),
    behaviour(98, "rereg stage 8: ERR_DO_FORK_OLD, the new registration is valid"),
    behaviour(99, "rereg rule 1: no flags pass the library and fail as ERR_CMD").but("refused before"),
    behaviour(
        100,
        "rereg rule 2: ERR_CMD and EOPNOTSUPP of a provider without it harm nothing; registering anew instead",
    ),
    behaviour(101, "rereg rule 3: a PD that is NULL or of another device")
        .also(&["proto/tests/memory/arguments.rs::the_flags_are_those_of_what_is_to_change"])
        .but("a missing PD cannot be written down"),
    behaviour(102, "rereg rule 4: what has no flag is ignored; no rights are legal"),
    behaviour(103, "rereg rules 5 and 6: the iova is the address; the library's copy of the rights stays")
        .but("not applicable to a driver: an MR has no other iova, and no device here can do ON_DEMAND"),
    behaviour(104, "rereg rule 7: keys may change and are read again"),
    behaviour(105, "rereg rule 8: advice about forks is counted by page")
        .but("not applicable to a driver: advice has no effect that it could see"),
    behaviour(106, "rereg rule 9: traffic by old keys, rights and PDs fails")
        .also(&["sim/tests/scenarios/memory/reach.rs::what_is_under_way_is_checked_when_it_arrives"])
        .but("posted work requests pin their memory, so that nothing of this happens to them"),
    behaviour(107, "rereg rule 10: a failed MR must be deregistered, and can be, once"),
    behaviour(108, "kernel check 1: a driver without the method, EOPNOTSUPP before anything"),
    behaviour(109, "kernel check 2: no flags, EINVAL").but("refused before"),
    behaviour(110, "kernel check 3: unknown flags, EOPNOTSUPP").but("not applicable to a driver: as behaviour 91"),
    behaviour(111, "kernel check 4: different offsets in a page").but("not applicable: the iova is the address"),
    behaviour(112, "kernel check 5: an unknown handle ENOENT, one in use EBUSY")
        .but("not applicable to a driver: an MR is known while it is there, and one thread has it"),
    behaviour(113, "kernel check 6: device memory").but("not applicable: as behaviour 90"),
    behaviour(114, "kernel check 7: rights as for ibv_reg_mr")
        .but("before Linux 6.12.113 without another PD: rxe changed the PD although it refused the rights"),
    behaviour(115, "kernel check 8: the same PD is no change; an unknown one ENOENT")
        .but("an unknown PD cannot be named"),
    behaviour(116, "kernel check 9: the driver's errno"),
    behaviour(117, "after the driver: use counts move from the old PD to the new one"),
    behaviour(118, "after a driver that made a new MR: other keys, use counts move"),
    behaviour(119, "after a failure use counts are as before"),
    behaviour(120, "write permission for pages that were pinned read-only: EACCES")
        .also(&[
            "tests/kernel/src/rereg/faults.rs::pinned_to_be_read",
            "sim/tests/scenarios/memory/calls.rs::pages_that_were_pinned_for_reading_stay_so",
        ])
        .but("takes a raw buffer, and the kernel"),
    behaviour(121, "rxe: PD and rights; other memory EOPNOTSUPP; the old registration stays"),
    behaviour(122, "mlx5: everything, in place or by a new MR"),
    behaviour(123, "mlx4 and hns: a failure after the hardware has let go leaves nothing"),
    behaviour(124, "irdma: the same, and a deregistration then counts on the wrong PD")
        .also(&["sim/tests/scenarios/memory/outcomes.rs::a_driver_that_mixes_up_domains_leaves_one_busy"])
        .but("the PD cannot be deallocated then, and says so; no memory is freed too early"),
    behaviour(125, "others: no method"),
    behaviour(126, "ibv_dereg_mr: 0, or an errno and the MR stays"),
    behaviour(127, "work requests that are not over are counted"),
    behaviour(128, "a disconnect flushes the own QP, also behind unsignaled requests; the peer's does not"),
    behaviour(129, "ibv_resize_cq: the completions stay; EINVAL beyond the device's maximum")
        .but("less than the QPs have reserved is refused before; the kernel refuses less than the completions in it"),
    behaviour(130, "a late receive costs the receiver's min_rnr_timer: 655 ms, or what ibv_modify_qp sets in RTS")
        .but("librdmacm sets the attributes of RTR and RTS itself, so they cannot be chosen there"),
    behaviour(
        131,
        "ibv_query_device, ibv_query_port, ibv_query_gid_table: what the device refuses is above its maxima",
    ),
    behaviour(132, "a datagram that is longer than the MTU of the port")
        .but("refused by the post; the device would complete it with success, and send nothing"),
    behaviour(
        133,
        "a block is in flight until its completion was polled; one that a window shows, until that of its end",
    )
    .also(&["tests/kernel/src/device/blocks.rs::any_program"]),
    behaviour(134, "several registrations of one memory: each has its keys, all have the address"),
];
