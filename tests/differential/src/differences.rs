//! Known differences between the simulator and a kernel, and what no program contains, with reasons:
//! `docs/generated/differences.md`.

use std::fmt::Write as _;

/// A difference, or an omission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its subject.
    pub what: &'static str,
    /// Its reason, and how it is handled here.
    pub reason: &'static str,
}

/// Results that may differ and are not compared.
pub const NOT_COMPARED: &[Difference] = &[
    Difference {
        what: "length and immediate data of the completion of a send or write",
        reason: "they belong to the receiver; soft-RoCE sets `IBV_WC_WITH_IMM` at the sender too, with a value of 0",
    },
    Difference {
        what: "the completions of a QP after its end",
        reason: "soft-RoCE flushes what is in flight and leaves the completions in the CQ; the simulator leaves the completed ones only, and \
              mlx5 removes them",
    },
    Difference {
        what: "times",
        reason: "the machine is emulated; a run in which a timer could have run out at another step than the simulator's is also \
              compared with the simulator's in which the timers end after any other step. If none agrees, it is run again, with \
              fewer others beside it, and counts as undecided if that does not help",
    },
    Difference { what: "ephemeral ports", reason: "the kernel's choice is random; that there is one is compared" },
    Difference {
        what: "QP numbers of attached QPs",
        reason: "the device's choice; those that a program gives are compared, counted from the program's first",
    },
    Difference {
        what: "the flow label and the index of the source GID in an address handle's attributes",
        reason: "made of ephemeral ports, and a position in a table that other interfaces share; the rest is compared",
    },
    Difference {
        what: "whether time waits end in the order in which they began",
        reason: "a tick of the kernel's timer wheel is 32 ms long for them, or 256 ms on 6.1, and those of a tick end with the newest \
              (`enqueue_timer` and `expire_timers` in `kernel/time/timer.c`). When ticks begin is the machine's affair: the \
              simulator runs with every choice of which time waits share one (`Config::time_waits_of_one_tick`), and the kernel \
              must do as it does with one of them",
    },
    Difference {
        what: "whether a message that a step sends arrives before the step goes on to read",
        reason: "the kernel's workers deliver it when the scheduler lets them; an id that is connected to its own side shows it. The \
              simulator runs with none of a program's such messages arriving early, with each one, and with all; the kernel must \
              do as it does with one of these",
    },
    Difference {
        what: "who is woken by events that a migration moves",
        reason: "nobody waits in a program: every channel is polled afresh before each read, and what the poll says is compared, \
              also after a migration. The simulator's channel is silent then by default, on purpose, so that a driver that \
              forgets to drain is found out; here it does as a fresh poll of the kernel's (`Config::wake_on_migrate`)",
    },
];

/// Calls and conditions that no program contains.
pub const NOT_GENERATED: &[Difference] = &[
    Difference {
        what: "a receive that is posted in the error state of its QP",
        reason: "the simulator flushes it; soft-RoCE may never look at it, because its library posts receives without a system call \
              (`tests/kernel/src/device/late_receives.rs`)",
    },
    Difference {
        what: "on the data path: steps that race, retries after RNR, datagrams, re-registration in place",
        reason: "work is posted by the bare device, and completes before the next step; the simulator has one mode",
    },
    Difference {
        what: "a link-local address with the scope of another interface, a lookup of an address of another device or from one, and on soft-iWARP several \
              ids on one port",
        reason: "the simulator has one interface without a device; the way to the other device is a wire in the VM; TCP has other rules for \
              a port, which the simulator does not have",
    },
    Difference {
        what: "a send that invalidates a window of the peer that is not bound",
        reason: "soft-RoCE's kernel follows null pointers (`rxe_do_invalidate_mw`, hazard P43). A program is run on the simulator first, \
              which counts such sends (`Counters::unbound_invalidated`), and they are left out",
    },
    Difference {
        what: "answers after which a destroy takes 70 seconds",
        reason: "the kernel waits for a message of the id's own, with the thread that runs all programs (`cm_destroy_id`); a \
              program is run on the simulator first, which counts such destroys, and the answer to blame is left out",
    },
    Difference {
        what: "the migration, at the device, of an id that has listened",
        reason: "with unread requests it leaves the kernel with pointers to freed memory (`ucma_migrate_id`); the core never asks \
              for it. Listeners do move in programs that go through the core",
    },
    Difference {
        what: "at the device, another lookup of an id that has a route, of an address that is valid on one link only",
        reason: "6.1 was seen to stop at a check of a list when such ids were destroyed. By its source, `cma_bind_addr` changes the \
              id's interface before it refuses the call, and the tree of ids (`id_table`) is sorted by it. The core refuses \
              such a call by itself",
    },
    Difference {
        what: "requests to a group, to a broadcast address, or from an IPv6 address to `::` or `::1`",
        reason: "nobody answers the former. After some of these programs 6.1 and 6.12 were seen to answer no lookup of the device \
              for 20 seconds; perhaps its queue pair for messages is in the error state (`mad_error_handler`)",
    },
    Difference {
        what: "closing a channel that has ids, at the device",
        reason: "librdmacm would follow the ids' pointers to it, so `cmid-verbs` refuses; the simulator destroys the ids",
    },
    Difference {
        what: "taking off a QP that is not there, twice the same group on one id, a notification of anything but COMM_EST",
        reason: "null pointers in librdmacm, memberships that it cannot distinguish, connections that break without a word",
    },
    Difference {
        what: "on soft-iWARP: a batch of which a request ends the connection before the last one, and memory that crosses a page",
        reason: "whether the others are sent, flushed or fail is the scheduler's choice (`Counters::after_end` tells of such programs); the kernel \
              sends other bytes (`siw_try_1seg`, hazard P95)",
    },
    Difference { what: "on soft-iWARP: datagram ids and groups", reason: "it offers none (semantics, 16.2)" },
    Difference {
        what: "on soft-iWARP: a disconnect or a destroy of an id that waits for an answer, at the device",
        reason: "the kernel waits for the answer, with the thread that runs all programs (`iw_cm_disconnect`, `destroy_cm_id`); a program \
              is run on the simulator first, which counts such calls, and a step to blame is left out. The core waits by itself",
    },
    Difference {
        what: "time-outs of requests and of address lookups",
        reason: "they take seconds to minutes; the slow conformance scenarios wait for them on both kernels",
    },
    Difference {
        what: "loss, devices that go, link addresses that change, several threads",
        reason: "scenarios of their own show them (docs/generated/behaviours.md)",
    },
];

/// A difference between the backends of cmid-verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetweenBackends {
    /// Its subject.
    pub what: &'static str,
    /// What librdmacm does.
    pub librdmacm: &'static str,
    /// What the kernel backend does.
    pub kernel: &'static str,
    /// A test that shows it.
    pub test: &'static str,
}

/// The differences between the backends. The recorded outcomes of conformance are the same on both.
pub const BETWEEN_BACKENDS: &[BetweenBackends] = &[
    BetweenBackends {
        what: "waiting",
        librdmacm: "`rdma_destroy_id`, `rdma_migrate_id` and `rdma_leave_multicast` wait until each event of the id is acked;                     `cmid-verbs` acks each event as it reads it",
        kernel: "no event is acked, and no call waits for one",
        test: "conformance::behaviour_48_destroy_waits_for_acks_and_nobody_waits",
    },
    BetweenBackends {
        what: "the NULL channel",
        librdmacm: "a NULL channel makes an id synchronous; `cmid-verbs` never passes one",
        kernel: "each id has a channel",
        test: "verbs/tests/kernel_failures/main.rs::active",
    },
    BetweenBackends {
        what: "ibacm",
        librdmacm: "`rdma_resolve_route` queries ibacm and waits for its answer; `cmid-verbs` refuses librdmacm where ibacm runs",
        kernel: "ibacm is not contacted",
        test: "tests/kernel/src/device/ibacm.rs::never_contacted",
    },
    BetweenBackends {
        what: "when the RDMA device of an id is opened",
        librdmacm: "at `rdma_bind_addr` and when ADDR_RESOLVED is read, which fails without free descriptors",
        kernel: "for the first PD of the id",
        test: "tests/kernel/src/device/opened.rs::without_descriptors",
    },
    BetweenBackends {
        what: "a listener with an unread request is migrated at the device",
        librdmacm: "the request is lost, and its peer waits until the old channel is closed",
        kernel: "the new id migrates with its listener",
        test: "conformance::behaviour_54_what_the_kernel_does_to_unread_requests",
    },
    BetweenBackends {
        what: "a group is left after DEVICE_REMOVAL",
        librdmacm: "`rdma_leave_multicast` frees its record, to which an unread MULTICAST_JOIN refers; `cmid-verbs` discards \
                    that event",
        kernel: "no event is lost",
        test: "tests/kernel/src/device/removal.rs::nothing_is_lost",
    },
    BetweenBackends {
        what: "the status of CONNECT_ERROR if the QP cannot be changed, and of MULTICAST_ERROR if it cannot be attached",
        librdmacm: "−1; a positive errno if `ibv_set_ece` fails",
        kernel: "the errno of the QP, negative; −1 if the handshake itself is over",
        test: "verbs/src/kernel/failing_tests.rs::the_errno_of_a_qp_that_cannot_be_changed_is_in_the_event",
    },
];

/// Renders the document.
#[must_use]
pub fn render() -> String {
    let mut text = String::from(
        "# Where the simulator and a kernel may differ\n\nRendered by `cargo xtask diagrams` from `tests/differential/src/differences.rs`; \
         do not edit.\n\n`cargo xtask differential` runs random programs of calls on both, and what each side sees must be \
         equal, but for this.\n",
    );
    for (title, list) in [("Not compared", NOT_COMPARED), ("In no program", NOT_GENERATED)] {
        let _ = write!(text, "\n## {title}\n\n| what | why |\n| --- | --- |\n");
        for Difference { what, reason } in list {
            let _ = writeln!(text, "| {what} | {reason} |");
        }
    }
    text.push_str(
        "\n# Where the backends of cmid-verbs differ\n\nThe recorded outcomes of conformance are the same on both \
         (a test compares them), but for this.\n\n\
         | what | librdmacm | kernel backend | shown by |\n| --- | --- | --- | --- |\n",
    );
    for BetweenBackends { what, librdmacm, kernel, test } in BETWEEN_BACKENDS {
        let _ = writeln!(text, "| {what} | {librdmacm} | {kernel} | `{test}` |");
    }
    text
}
