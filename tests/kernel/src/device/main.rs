//! A self-check of this crate on a real kernel: two devices in one process connect over 10.99.0.1 and 10.99.0.2, which
//! have to be addresses of an RDMA device (`rxe0` in the soft-RoCE machine). Multicast goes from 10.98.0.1 to
//! 10.98.0.2, two devices with a link between them (`rxe1` and `rxe2`).
//!
//! Run it by `cargo xtask softroce -- target/release/kernel-device [classic] [NAME]`; with `classic` QPs post by
//! ibv_post_send. It needs a device, so it is not a test:
//! without one it fails. It exits with status 101 and a message at the first unexpected result.
#![expect(unsafe_code, reason = "it calls C")]
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

mod allocations;
mod async_events;
mod blocks;
mod calls;
mod commands;
mod comp_channels;
mod creations;
mod data;
mod disassociated;
mod env;
mod forgotten;
mod forks;
mod heap;
mod ibacm;
mod inherited;
mod inventory;
mod late_receives;
mod loopback;
mod memory;
mod multicast;
mod opened;
mod options;
mod pins;
mod refused_posts;
mod registration;
mod removal;
mod rereg;
mod retries;
mod srq;
mod threads;
mod windows;

use std::time::Instant;

const CHECKS: &[(&str, fn())] = &[
    ("calls that would crash librdmacm are refused", calls::guards),
    ("stale keys and misplaced channels are refused", calls::keys),
    ("what could not be destroyed makes room", forgotten::make_room),
    ("a listener on a loopback address is open to all networks", loopback::open_to_all),
    ("behaviour 80: memory that cannot be registered", registration::bad_memory),
    ("behaviour 80: rights that cannot be given", registration::bad_rights),
    ("behaviour 80: the lock limit", registration::lock_limit),
    ("memory that is only to be read", rereg::read_only),
    ("what goes of a device that the kernel has taken away", disassociated::destroyed),
    ("behaviour 81: memory that cannot be kept from children", forks::advised),
    ("a forked child drops what it has inherited", inherited::everything),
    ("a forked child is refused what it has inherited", inherited::requests),
    ("a forked child drops a CQ with blocks of a QP that is gone", inherited::blocks),
    ("memory without local write is no target", pins::read_only),
    ("a deregistration under a peer's write", registration::under_a_write),
    ("a deregistration under a peer's write that cannot be awaited", registration::while_peers_write),
    ("a deregistration under a peer's write, and of own memory", registration::of_own_memory),
    ("refused posts: before the QP sends", refused_posts::too_early),
    ("refused posts: the kernel refuses the doorbell", refused_posts::doorbell),
    ("refused posts: completions out of order", refused_posts::out_of_order),
    ("refused posts: flags that do not exist", refused_posts::unknown_flags),
    ("refused posts: requests without ranges", refused_posts::without_ranges),
    ("a CQ that is full of flushed reads", refused_posts::flushed_reads),
    ("refused posts: opcodes of failures", refused_posts::failed_opcodes),
    ("refused posts: reads that the peer does not answer", refused_posts::no_reads),
    ("refused posts: memory of unsignaled requests", refused_posts::unsignaled_memory),
    ("a queue has its ring from the first post on", pins::first_post),
    ("blocks: the kernel refuses the doorbell", blocks::refused),
    ("blocks: of a pool of two devices that are siblings", blocks::of_siblings),
    ("blocks: any program", blocks::any_program),
    ("posts and polls allocate nothing", allocations::none),
    ("a loop that waits for a peer's write ends", data::flags),
    ("a short read across pages", data::short_read_across_pages),
    ("a read without the right", data::reads_without_the_right),
    ("slices of memory that is only to be read", data::slices),
    ("failed work is assigned to its queue", pins::failed),
    ("pinned memory that is dropped", pins::dropped),
    ("pinned memory that is dropped, with several threads", pins::threads),
    ("atomic operations of a device that has none", pins::no_atomics),
    ("memory that is dropped with a window bound to it", windows::dropped),
    ("a block that this side takes back from a window", windows::recalled),
    ("a window behind memory whose owner panics", windows::behind_a_panic),
    ("memory behind a window whose block's owner panics", windows::before_a_panic),
    ("handles outlive their device", data::outliving),
    ("an id changes threads", threads::accepted_elsewhere),
    ("a handle that nobody adopts", threads::abandoned),
    ("an ACK timeout counts for the QP of its own side", options::ack_timeouts),
    ("behaviour 75: joining, leaving, and what is refused", multicast::membership),
    ("datagrams to a group", multicast::delivered),
    ("datagrams to a group, on one device", multicast::received_by_all),
    ("QPs and ids go while they are in groups", multicast::nothing_is_left),
    ("ids that are in groups leave no records behind", multicast::no_records_are_left),
    ("a thread with other credentials leaves no group", multicast::other_credentials),
    ("what an application gets for a QP of its own", calls::raw),
    ("an SRQ whose CQs are polled by two threads", srq::threads),
    ("a QP of an SRQ fails", srq::errors),
    ("datagrams that are too long for their receives", srq::long_datagrams),
    ("a CQ goes while another thread reads its completion channel", comp_channels::threads),
    ("a wait in a read of a completion channel", comp_channels::waits),
    ("a receive that is posted to a QP in its error state", late_receives::not_flushed),
    ("seven retries have no limit on soft-RoCE", retries::without_limit),
    ("retries while the peer has no receive", retries::for_a_receive),
    ("asynchronous events: an address comes and goes", async_events::address_changes),
    ("asynchronous events: why a QP fails", async_events::of_failures),
    ("creations that fail name the capacity and its maximum", creations::capacities),
    ("creations that fail name the object of another device", creations::elsewhere),
    ("the devices", inventory::devices),
];

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.first().is_some_and(|first| first == "classic") {
        env::post_by_classic_calls();
        wanted.remove(0);
    }
    // It removes a device, so it runs only on request, and alone.
    if wanted.iter().any(|name| name == "removal") {
        removal::device_removed();
        return;
    }
    // Likewise.
    if wanted == ["ibacm"] {
        ibacm::silent();
        return;
    }
    // Started by the check of what blocks.
    if wanted == ["as-ibacm"] {
        ibacm::stand_in();
        return;
    }
    // Likewise, and it starts processes of its own.
    if let [first, rest @ ..] = wanted.as_slice()
        && first == "opened"
    {
        rest.first().map_or_else(opened::all, |part| opened::part(part));
        return;
    }
    // Started by other checks.
    if wanted == ["disassociated"] {
        disassociated::in_a_process();
        return;
    }
    if wanted == ["forks"] {
        forks::in_a_process_that_asked();
        return;
    }
    let started = Instant::now();
    let mut ran = 0;
    for (name, check) in CHECKS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let from = Instant::now();
            check();
            println!("ok {:>6} ms  {name}", from.elapsed().as_millis());
            ran += 1;
        }
    }
    assert!(ran > 0, "no check has such a name");
    println!("{ran} checks passed in {} ms", started.elapsed().as_millis());
}
