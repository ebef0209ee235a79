//! The rows: observed behaviour of Linux 6.1 and 6.12 with soft-RoCE and librdmacm 44, and references to tests
//! outside of this suite that show a row.

/// A row of observed behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Its number. Missing numbers were merged into their neighbours. Rows from 80 on are about memory. Rows from 84
    /// on are the table lines and rules found about PDs, MRs and `ibv_rereg_mr`, in their order.
    pub number: u8,
    /// Its subject, in a line.
    pub about: &'static str,
    /// Tests and programs outside of this suite that show the row too, or the part that a driver cannot show:
    /// `path::function`.
    pub elsewhere: &'static [&'static str],
    /// What differs from the row on purpose, or cannot be requested through a driver.
    pub remark: &'static str,
}

const fn row(number: u8, about: &'static str) -> Behaviour {
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

/// All rows.
pub const BEHAVIOURS: &[Behaviour] = &[
    row(1, "connect with QPs"),
    row(2, "disconnect, answered, time wait"),
    row(3, "disconnect answered by a destroy"),
    row(4, "disconnect answered before it is read"),
    row(6, "connect without QPs, establish"),
    row(7, "parameters are mirrored and clamped"),
    row(8, "default parameters are the device's maxima"),
    row(9, "destroy while established"),
    row(10, "a process ends while established")
        .also(&["sim/tests/scenarios/normal_life.rs::row_10_a_process_that_exits_disconnects"])
        .but("a process is killed where there are processes; besides, a driver is dropped, which closes its channels"),
    row(11, "nobody listens"),
    row(12, "a listener on another address"),
    row(13, "reject with private data; nothing else is possible afterwards")
        .but("the core refuses the second reject and the accept; the bare device answers the same EINVAL"),
    row(14, "reject because of enhanced connection establishment"),
    row(15, "destroy of a request rejects it"),
    row(16, "private data too long")
        .but("refused by the core, so that the request stands; the kernel's answer, past the core, rejects the peer"),
    row(17, "a second accept")
        .also(&["sim/tests/scenarios/refusals.rs::row_17_a_second_accept_kills_the_connection_and_stalls_destroy"])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    row(19, "reject before the answer")
        .also(&["sim/tests/scenarios/refusals.rs::row_19_a_reject_before_the_answer_stalls_destroy"])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    row(20, "reject after the answer")
        .also(&["sim/tests/scenarios/refusals.rs::row_20_a_late_reject_stalls_destroy"])
        .but("refused by the core: the kernel's destroy would take 70 s"),
    row(21, "the client rejects the answer"),
    row(22, "depths beyond the device's"),
    row(23, "the client goes before the accept"),
    row(24, "the client goes before its request is read"),
    row(25, "the client goes without reading the answer"),
    row(26, "the client goes after reading the answer"),
    row(27, "the server goes before the client reads the answer"),
    row(29, "a host that does not answer").also(&["sim/tests/scenarios/vanishing.rs::row_29_nobody_there"]),
    row(30, "the server never reads").also(&["sim/tests/scenarios/vanishing.rs::row_30_the_server_never_answers"]),
    row(31, "the client never reads the answer")
        .also(&["sim/tests/scenarios/vanishing.rs::row_31_the_client_never_reads_the_answer"]),
    row(32, "a disconnect is never answered")
        .also(&["sim/tests/scenarios/vanishing.rs::row_32_a_disconnect_is_never_answered"]),
    row(33, "a full backlog makes clients wait").also(&[
        "sim/tests/scenarios/vanishing.rs::row_33_a_full_backlog_makes_clients_wait",
        "sim/tests/scenarios/vanishing.rs::row_33_the_third_waits_twice_if_the_second_is_read_late",
    ]),
    row(34, "a second listen fails and shrinks the backlog")
        .but("refused by the core, so that the backlog stays; what the kernel does is shown past the core"),
    row(35, "a listener goes with unread requests, not with those that were read"),
    row(36, "a neighbour's link address changes"),
    row(37, "a QP number is used again"),
    row(38, "the same QP number on both sides"),
    row(39, "bind").but("AF_UNIX, NULL and unknown port spaces cannot be written down"),
    row(40, "listen; an address that is used twice"),
    row(41, "resolve without a route, and out of order")
        .but("a route without time: past the core, which gives at least 1 ms"),
    row(42, "nobody has the address")
        .also(&["sim/tests/scenarios/addresses.rs::row_42_nobody_has_the_address"])
        .but("time-out 0 cannot be asked for: the core refuses a deadline that is over"),
    row(44, "the loopback address resolves and has no route"),
    row(45, "destroy while resolving"),
    row(46, "reading an empty channel")
        .but("EAGAIN is \"no event\"; all channels are non-blocking, so that no read can be interrupted (EINTR)"),
    row(47, "a channel is closed with ids on it")
        .also(&["sim/tests/scenarios/channels.rs::row_47_closing_a_channel_ends_what_is_on_it"])
        .but("refused by the core; all channels of a driver are closed when it is dropped"),
    row(48, "destroy waits for acks"),
    row(49, "a request counts on its listener"),
    row(50, "migrate in every state"),
    row(51, "migrate with an unread event")
        .also(&[
            "tests/kernel/src/lost_wakeup.rs::lost",
            "sim/tests/scenarios/channels.rs::row_51_a_moved_event_wakes_nobody",
        ])
        .but("the drivers read what moved without a wake-up; that the kernel gives none is shown with bare calls"),
    row(52, "migrate waits for acks").but("nobody waits: it is carried out with the last ack, and an event tells"),
    row(53, "migrate to the same channel: its events go last"),
    row(54, "a listener migrates with an unread request")
        .also(&["sim/tests/scenarios/channels.rs::row_54_a_listener_migrates_with_an_unread_request"])
        .but("the core loses nothing; what the kernel does is shown past the core"),
    row(56, "a synchronous listener migrates with an unread request")
        .but("the core loses nothing; NULL is never passed to librdmacm, so that its synchronous mode does not occur"),
    row(57, "migrate errors")
        .also(&["sim/tests/scenarios/channels.rs::row_57_migrate_errors"])
        .but("foreign and closed descriptors cannot be named: channels are keys"),
    row(58, "a new id migrates before its accept"),
    row(59, "a new id is accepted in synchronous mode"),
    row(60, "a whole life in synchronous mode"),
    row(61, "synchronous connects that are refused"),
    row(62, "a dead address in synchronous mode"),
    row(63, "a synchronous connect without a QP"),
    row(64, "the peer disconnected earlier")
        .but("a second disconnect waits for nothing; librdmacm's returns with whatever event comes next"),
    row(65, "the client goes during a synchronous accept"),
    row(67, "a synchronous listener is destroyed after its request was rejected")
        .but("does not hang: librdmacm's would wait for an ack that nobody can give"),
    row(68, "a synchronous disconnect of what is not connected")
        .but("refused by the core, where librdmacm's would hang; the kernel's answer is shown past the core"),
    row(69, "a synchronous id whose channel does not block"),
    row(70, "datagrams: nobody listens"),
    row(71, "datagrams: rejected"),
    row(72, "datagrams: answered").but(
        "too long an answer and a disconnect are refused by the core; what the kernel does is shown past the core",
    ),
    row(73, "datagrams: a full backlog, a listener or a request that is destroyed"),
    row(74, "datagrams: a silent server").also(&["sim/tests/scenarios/datagrams.rs::row_74_a_silent_server"]),
    row(75, "multicast groups")
        .but("join_ex errors cannot be written down; the same group twice is refused by the core"),
    row(76, "notify").but("events other than COMM_EST cannot be written down"),
    row(77, "notify of a path migration breaks the connection").but("not applicable: there is no request for it"),
    row(78, "the device goes").but("for ids that have been told the core answers itself, with the same ENXIO"),
    row(79, "a bond fails over"),
    row(80, "ibv_reg_mr: rights and addresses that cannot be registered")
        .also(&[
            "tests/kernel/src/device/registration.rs::bad_memory",
            "tests/kernel/src/device/registration.rs::bad_rights",
            "tests/kernel/src/device/registration.rs::lock_limit",
            "sim/tests/scenarios/memory/calls.rs::row_80_registrations_are_checked",
        ])
        .but("remote rights without local write are refused before; memory that is not mapped takes a raw buffer"),
    row(81, "ibv_rereg_mr of a provider without it: ERR_INPUT, or ERR_CMD and EOPNOTSUPP; nothing changes")
        .also(&[
            "tests/kernel/src/device/rereg.rs::unsupported",
            "sim/tests/scenarios/memory/calls.rs::row_81_a_provider_without_re_registration_changes_nothing",
        ])
        .but("bad arguments are refused before the library is asked"),
    row(82, "the kernel's rxe re-registers: the old PD deallocates, the new one does not, rights change")
        .also(&[
            "tests/kernel/src/rereg/domains.rs::moved",
            "tests/kernel/src/rereg/rights.rs::reading",
            "sim/tests/scenarios/memory/calls.rs::row_82_rxe_asked_directly_changes_domain_and_rights",
        ])
        .but("Linux 6.1 cannot; 6.12 is asked by a library for tests, as rdma-core does not"),
    row(83, "a bound window: the MR and the PD stay until it is gone").also(&[
        "tests/kernel/src/device/windows.rs::bound",
        "sim/tests/scenarios/memory/windows.rs::row_83_a_bound_window_holds_region_and_domain",
    ]),
    row(84, "ibv_dealloc_pd: EBUSY while anything refers to the PD, and it lives on")
        .also(&[
            "tests/kernel/src/device/registration.rs::domains",
            "sim/tests/scenarios/memory/calls.rs::qps_and_address_handles_belong_to_a_domain",
        ])
        .but("refused with how many things do, where the kernel would say EBUSY"),
    row(85, "librdmacm's default PD").but("not applicable: a QP is always made with a PD of the application's"),
    row(86, "ibv_reg_mr: the fields of an MR; rxe's keys are equal"),
    row(87, "access 0 is legal: local reads only"),
    row(88, "ibv_reg_mr: optional rights are masked"),
    row(89, "rdma_reg_msgs, rdma_reg_read and rdma_reg_write")
        .but("not applicable: they are ibv_reg_mr with rights that one writes down"),
    row(90, "rereg stage 1: only plain MRs").but("not applicable: no other MRs can be made"),
    row(91, "rereg stage 2: unknown flags")
        .also(&["proto/tests/memory/arguments.rs::arguments_of_the_library_that_contradict_each_other_are_no_change"])
        .but("not applicable to a driver: flags follow from what is to change; raw ones are checked"),
    row(92, "rereg stage 3: other memory that is NULL or empty"),
    row(93, "rereg stage 4: rights without their flag")
        .also(&["proto/tests/memory/arguments.rs::arguments_of_the_library_that_contradict_each_other_are_no_change"])
        .but("as row 91"),
    row(94, "rereg stage 5: ERR_DONT_FORK_NEW, the old registration is valid"),
    row(95, "rereg stage 6: ERR_CMD, valid or not is up to errno and provider"),
    row(96, "rereg stage 6: ERR_CMD_AND_DO_FORK_NEW"),
    row(97, "rereg stages 7 and 9: success, the fields are the new ones"),
    row(98, "rereg stage 8: ERR_DO_FORK_OLD, the new registration is valid"),
    row(99, "rereg rule 1: no flags pass the library and fail as ERR_CMD").but("refused before"),
    row(100, "rereg rule 2: ERR_CMD and EOPNOTSUPP of a provider without it harm nothing; registering anew instead"),
    row(101, "rereg rule 3: a PD that is NULL or of another device")
        .also(&["proto/tests/memory/arguments.rs::arguments_of_the_library_that_contradict_each_other_are_no_change"])
        .but("a missing PD cannot be written down; raw flags without one are refused"),
    row(102, "rereg rule 4: what has no flag is ignored; no rights are legal"),
    row(103, "rereg rules 5 and 6: the iova is the address; the library's copy of the rights stays")
        .but("not applicable to a driver: an MR has no other iova, and no device here can do ON_DEMAND"),
    row(104, "rereg rule 7: keys may change and are read again"),
    row(105, "rereg rule 8: advice about forks is counted by page")
        .also(&["sim/src/data/fork.rs::overlapping_ranges_keep_what_they_share"])
        .but("not applicable to a driver: advice has no effect that it could see"),
    row(106, "rereg rule 9: traffic by old keys, rights and PDs fails")
        .also(&[
            "tests/kernel/src/rereg/domains.rs::away_from_the_own_qp",
            "sim/tests/scenarios/memory/reach.rs::what_is_under_way_is_checked_when_it_arrives",
        ])
        .but("posted work requests pin their memory, so that nothing of this happens to them"),
    row(107, "rereg rule 10: a failed MR must be deregistered, and can be, once"),
    row(108, "kernel check 1: a driver without the method, EOPNOTSUPP before anything"),
    row(109, "kernel check 2: no flags, EINVAL").but("refused before"),
    row(110, "kernel check 3: unknown flags, EOPNOTSUPP").but("not applicable to a driver: as row 91"),
    row(111, "kernel check 4: different offsets in a page").but("not applicable: the iova is the address"),
    row(112, "kernel check 5: an unknown handle ENOENT, one in use EBUSY")
        .but("not applicable to a driver: an MR is known while it is there, and one thread has it"),
    row(113, "kernel check 6: device memory").but("not applicable: as row 90"),
    row(114, "kernel check 7: rights as for ibv_reg_mr")
        .but("before Linux 6.12.113 without another PD: rxe changed the PD although it refused the rights"),
    row(115, "kernel check 8: the same PD is no change; an unknown one ENOENT").but("an unknown PD cannot be named"),
    row(116, "kernel check 9: the driver's errno"),
    row(117, "after the driver: use counts move from the old PD to the new one"),
    row(118, "after a driver that made a new MR: other keys, use counts move"),
    row(119, "after a failure use counts are as before"),
    row(120, "write permission for pages that were pinned read-only: EACCES")
        .also(&[
            "tests/kernel/src/rereg/faults.rs::pinned_to_be_read",
            "sim/tests/scenarios/memory/calls.rs::pages_that_were_pinned_for_reading_stay_so",
        ])
        .but("takes a raw buffer, and the kernel"),
    row(121, "rxe: PD and rights; other memory EOPNOTSUPP; the old registration stays")
        .also(&["tests/kernel/src/rereg/faults.rs::translation"]),
    row(122, "mlx5: everything, in place or by a new MR")
        .also(&["sim/tests/scenarios/memory/calls.rs::every_combination_where_the_device_can_do_all"]),
    row(123, "mlx4 and hns: a failure after the hardware has let go leaves nothing"),
    row(124, "irdma: the same, and a deregistration then counts on the wrong PD")
        .also(&["sim/tests/scenarios/memory/outcomes.rs::a_driver_that_mixes_up_domains_leaves_one_busy"])
        .but("the PD cannot be deallocated then, and says so; no memory is freed too early"),
    row(125, "others: no method"),
    row(126, "ibv_dereg_mr: 0, or an errno and the MR stays"),
];
