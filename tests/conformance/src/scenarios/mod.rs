//! The scenarios: small functions, each named after its behaviour where it has one.

mod acks;
mod bad_input;
mod blocks;
mod channels;
mod data_path;
mod data_path_errors;
mod datagrams;
mod device_attrs;
mod disturbed;
mod draining;
mod groups;
mod handover;
mod iwarp;
mod iwarp_data;
mod leaks;
mod life;
mod listeners;
mod memory;
mod memory_fallback;
mod memory_outcomes;
mod memory_pins;
mod memory_refusals;
mod memory_register;
mod memory_removal;
mod memory_rereg;
mod memory_threads;
mod memory_translation;
mod memory_windows;
mod migration;
mod notify;
mod options;
mod qp_attrs;
mod refusals;
mod scenario;
mod shared_by_transports;
mod shared_queues;
mod shared_receives;
mod stalls;
mod states;
mod sync;
mod sync_listen;
mod teardown;
mod threads;
mod timeouts;
mod vanishing;
mod wrong_state;

use cmid_harness::{Check, Disturbance, Env, Fixture, Rereg, Speed};
use cmid_proto::{Acks, Transport};

pub use scenario::{Entry, Scenario};

/// The given value, if there is one.
const fn only(given: &[Rereg]) -> Option<Rereg> {
    if let [one] = given { Some(*one) } else { None }
}

macro_rules! list {
    ($($acks:ident $speed:ident { $($module:ident :: $name:ident [$($behaviour:literal),*] $(on $rereg:ident)? $(needs $($need:ident)+)?,)+ })+) => {
        const ENTRIES: &[Entry] = &[$($(
            Entry {
                name: stringify!($name),
                behaviours: &[$($behaviour),*],
                speed: Speed::$speed,
                needs: &[$($(Disturbance::$need),+)?],
                rereg: only(&[$(Rereg::$rereg)?]),
            },
        )+)+];

        fn steps<L: Env>() -> Vec<(Acks, fn(&mut Fixture<'_, L>) -> Check)> {
            vec![$($((Acks::$acks, $module::$name as fn(&mut Fixture<'_, L>) -> Check),)+)+]
        }
    };
}

/// The descriptions of all scenarios of InfiniBand, in the order in which they are best read and run.
#[must_use]
pub fn entries() -> &'static [Entry] {
    ENTRIES
}

/// All scenarios of InfiniBand, in the same order. Those that disturb the environment come last.
#[must_use]
pub fn scenarios<L: Env>() -> Vec<Scenario<L>> {
    let with = |(&entry, (acks, steps))| Scenario { entry, acks, steps };
    ENTRIES.iter().zip(steps::<L>()).map(with).collect()
}

/// The descriptions of the scenarios on a transport: on InfiniBand [`entries`]; on iWARP its own, and those of both.
#[must_use]
pub fn entries_on(transport: Transport) -> Vec<Entry> {
    match transport {
        Transport::InfiniBand => ENTRIES.to_vec(),
        Transport::Iwarp => {
            let shared = ENTRIES.iter().filter(|entry| shared_by_transports::SHARED.contains(&entry.name));
            iwarp::ENTRIES.iter().chain(shared).copied().collect()
        }
    }
}

/// The scenarios on a transport, in the same order.
#[must_use]
pub fn scenarios_on<L: Env>(transport: Transport) -> Vec<Scenario<L>> {
    match transport {
        Transport::InfiniBand => scenarios(),
        Transport::Iwarp => {
            let shared =
                scenarios().into_iter().filter(|scenario| shared_by_transports::SHARED.contains(&scenario.entry.name));
            iwarp::scenarios().into_iter().chain(shared).collect()
        }
    }
}

list! {
    OnDelivery Fast {
        life::behaviour_01_connect_with_qps [1],
        life::behaviour_02_disconnect_answered_then_time_wait [2],
        life::behaviour_03_disconnect_answered_by_destroy [3],
        life::behaviour_04_disconnect_answered_before_it_is_read [4],
        life::behaviour_06_connect_without_qps [6],
        life::behaviour_07_parameters_are_mirrored_and_clamped [7],
        life::behaviour_08_defaults_are_the_devices_maxima [8],
        life::behaviour_09_destroyed_while_established [9],
        life::behaviour_10_the_client_ends_while_established [10],
        refusals::behaviour_11_no_listener [11],
        refusals::behaviour_12_listener_on_another_address [12],
        refusals::behaviour_13_reject_with_private_data [13],
        refusals::behaviour_14_reject_because_of_enhanced_connection_establishment [14],
        refusals::behaviour_15_a_request_that_is_destroyed_is_rejected [15],
        refusals::behaviour_16_private_data_too_long [16],
        refusals::behaviour_16_what_the_kernel_does_about_too_long_an_answer [16],
        refusals::behaviour_21_the_client_rejects_the_answer [21],
        refusals::behaviour_22_depths_beyond_the_device [22],
        wrong_state::every_refusal_is_the_devices_own [],
        wrong_state::what_would_harm_is_refused [17, 19, 20],
        vanishing::behaviour_23_the_client_goes_before_the_accept [23],
        vanishing::behaviour_24_the_client_goes_before_its_request_is_read [24],
        vanishing::behaviour_25_the_client_goes_without_reading_the_answer [25],
        vanishing::behaviour_26_the_client_goes_after_reading_the_answer [26],
        vanishing::behaviour_27_the_server_goes_before_the_client_reads [27],
        listeners::behaviour_34_a_second_listen_is_refused_and_the_backlog_stays [34],
        listeners::behaviour_34_what_a_second_listen_does [34],
        listeners::behaviour_35_a_listener_goes_with_its_unread_requests [35],
        listeners::behaviour_35_a_listener_goes_with_requests_that_were_not_taken [35],
        listeners::behaviour_35_requests_that_were_read_outlive_their_listener [35],
        vanishing::behaviour_37_a_qp_number_is_used_again [37],
        vanishing::behaviour_38_the_same_qp_number_on_both_sides [38],
        bad_input::behaviour_39_bind [39],
        bad_input::behaviour_40_listen [40],
        bad_input::behaviour_40_an_address_that_is_used_twice [40],
        bad_input::behaviour_41_no_route_and_out_of_order [41],
        bad_input::behaviour_42_nobody_answers [42],
        bad_input::behaviour_44_the_loopback_address_has_no_route [44],
        bad_input::behaviour_45_destroyed_while_resolving [45],
        bad_input::stale_keys_and_long_private_data [],
        bad_input::deadlines_end_requests [],
        channels::behaviour_46_reading_an_empty_channel_returns_at_once [46],
        channels::behaviour_47_a_channel_is_closed_below_its_ids [47],
        channels::two_ids_on_one_channel_keep_their_orders [],
        channels::a_channel_in_use_is_not_closed [47],
        migration::behaviour_50_in_every_state [50],
        migration::behaviour_50_in_every_state_with_an_event_pending [50],
        migration::behaviour_51_a_pending_event_is_delivered_without_another_wake_up [51],
        migration::behaviour_53_to_the_same_channel_goes_last [53],
        listeners::behaviour_54_a_listener_takes_its_unread_requests_along [54],
        listeners::behaviour_54_what_the_kernel_does_to_unread_requests [54],
        listeners::behaviour_56_a_synchronous_listener_takes_its_unread_requests_along [56],
        migration::behaviour_57_to_a_channel_that_is_not_there [57],
        migration::behaviour_58_a_child_before_its_accept [58],
        sync::behaviour_59_a_child_is_accepted_synchronously [59],
        sync_listen::behaviour_60_a_whole_life_in_synchronous_mode [60],
        sync::behaviour_61_refused_connections [61],
        sync::behaviour_62_a_dead_address [62],
        sync::behaviour_63_connect_without_a_qp [63],
        sync::behaviour_64_the_peer_was_first [64],
        sync_listen::behaviour_65_the_client_goes_during_a_synchronous_accept [65],
        sync_listen::behaviour_65_the_client_goes_before_a_synchronous_accept [65],
        sync_listen::behaviour_67_a_listener_goes_after_its_request_was_rejected [67],
        sync_listen::behaviour_68_a_disconnect_that_would_hang_is_refused [68],
        sync_listen::behaviour_69_calls_return_before_their_events [69],
        sync::in_and_out_with_an_event_pending [],
        threads::an_accepted_id_goes_to_another_thread [],
        handover::every_state_changes_threads [],
        handover::a_listener_changes_threads_with_requests_unread [54],
        teardown::a_teardown_ends_with_the_time_wait [],
        teardown::a_teardown_from_both_sides_at_once_ends_for_both [],
        teardown::a_teardown_ends_at_its_deadline [],
        teardown::a_synchronous_teardown_ends_with_the_time_wait [],
        teardown::a_teardown_ends_when_the_peer_is_destroyed [],
        datagrams::behaviour_70_a_lookup_where_nobody_listens [70],
        datagrams::behaviour_71_a_lookup_is_rejected [71],
        datagrams::behaviour_72_a_lookup_is_answered [72],
        datagrams::behaviour_72_a_disconnect_is_refused [72],
        datagrams::behaviour_72_what_the_kernel_does_about_too_long_an_answer [72],
        datagrams::behaviour_73_a_full_backlog_answers_at_once [73],
        datagrams::behaviour_73_a_lookup_that_is_destroyed_is_rejected [73],
        groups::behaviour_75_join_and_leave [75],
        groups::behaviour_75_the_same_group_twice_is_refused [75],
        groups::behaviour_75_leaving_takes_the_unread_event_along [75],
        groups::behaviour_75_addresses_and_states_that_cannot_be_joined [75],
        groups::behaviour_75_a_membership_migrates [75],
        notify::behaviour_76_notify_establishes [76],
        options::options_are_taken_where_they_are_for [],
        leaks::nothing_is_left_after_200_cycles [],
        memory_register::behaviour_80_what_cannot_be_registered [80],
        memory_register::behaviour_84_a_pd_in_use_stays [84],
        memory_register::behaviour_86_what_a_registration_has [86],
        memory_register::behaviour_87_no_rights_are_the_right_to_read_locally [87],
        memory_register::behaviour_88_optional_rights_are_taken [88],
        memory_refusals::behaviour_81_what_makes_no_sense_is_refused [81, 92, 99, 109, 114],
        memory_refusals::behaviour_81_a_provider_without_it_changes_nothing [81, 100, 108, 125] on No,
        memory_refusals::behaviour_101_a_pd_of_another_device_is_refused [101],
        memory_fallback::behaviour_100_a_fallback_registers_anew [100, 104] on No,
        memory_fallback::behaviour_100_a_fallback_that_fails_leaves_the_old_one [100] on No,
        memory_rereg::behaviour_82_another_pd [82, 97, 117, 121] on PdAccess,
        memory_rereg::behaviour_106_memory_whose_pd_has_changed_cannot_be_posted [106] on PdAccess,
        memory_rereg::behaviour_106_rights_are_taken_and_given [82, 97, 102, 106, 121] on PdAccess,
        memory_rereg::behaviour_106_a_connection_feels_it_at_once [106] on PdAccess,
        memory_rereg::behaviour_115_the_pd_that_it_has [115] on PdAccess,
        memory_rereg::behaviour_117_pd_and_rights_at_once [117] on PdAccess,
        memory_rereg::behaviour_121_other_memory_is_not_supported [82, 116, 119, 121] on PdAccess,
        memory_rereg::behaviour_114_rights_that_the_device_has_not [82, 114, 119] on PdAccess,
        memory_translation::behaviour_97_every_combination_of_flags [97, 122] on All,
        memory_translation::behaviour_97_other_memory [97, 122] on All,
        memory_translation::behaviour_118_new_keys [104, 118, 122] on NewKeys,
        memory_pins::until_the_completion_is_polled [] on No,
        memory_pins::reads_and_writes_pin_as_well [] on No,
        memory_pins::until_the_flush_is_polled [] on No,
        memory_pins::until_the_qp_is_gone [] on No,
        memory_pins::dropped_memory_goes_later [] on No,
        memory_threads::slow_calls_are_another_threads [] on No,
        memory_threads::memory_goes_to_another_thread_and_comes_back [] on No,
        leaks::nothing_is_left_of_memory_after_200_cycles [] on No,
        memory_windows::behaviour_83_a_bound_window_holds_its_memory [83, 126] on No,
        memory_windows::behaviour_121_a_bound_window_holds_its_registration [121] on PdAccess,
        memory_windows::a_fallback_with_a_window_bound_is_refused [100] on No,
        data_path::a_message_is_gathered_and_scattered [],
        data_path::every_range_of_a_request_is_pinned [],
        data_path::immediate_data_arrives_with_sends_and_writes [],
        data_path::atomic_operations_return_the_old_value [],
        data_path::an_unsignaled_request_ends_with_a_later_one [],
        data_path::an_unsignaled_request_that_fails_has_a_completion [],
        data_path::a_batch_is_posted_completely_or_not_at_all [],
        data_path::inline_data_can_change_at_once [],
        data_path::a_send_invalidates_a_window_of_the_peer [],
        data_path::only_solicited_completions_notify [],
        data_path::the_device_of_an_id_is_known_once_it_has_one [],
        data_path_errors::each_completion_is_polled_once [],
        data_path_errors::two_threads_poll_one_queue_in_turn [],
        data_path_errors::what_follows_a_failure_is_flushed_in_order [],
        data_path_errors::a_send_without_a_receive_and_retries_fails_at_once [],
        data_path_errors::a_write_without_a_receive_fails_after_its_retries [],
        data_path_errors::a_message_waits_for_its_receive [],
        data_path_errors::a_receive_that_is_too_short_ends_both_sides [],
        data_path_errors::a_failed_atomic_changes_nothing [],
        data_path_errors::a_full_queue_of_unsignaled_requests_needs_a_completion [],
        shared_queues::a_channel_reports_which_cq_has_completions [],
        shared_queues::several_qps_report_to_one_cq [],
        shared_queues::soft_roce_does_not_moderate_notifications [],
        blocks::a_block_comes_back_with_its_completion [133],
        blocks::a_window_owns_its_block [83, 133] on No,
        blocks::several_registrations_share_memory [134],
        draining::the_requests_that_are_left_are_counted [127],
        draining::a_qp_is_drained_after_its_disconnect [128],
        draining::a_drain_ends_with_its_deadline [128],
        draining::a_cq_is_resized_with_the_completions_in_it [129],
        qp_attrs::a_receive_that_is_posted_late_costs_the_timer_of_the_receiver [130],
        qp_attrs::attributes_are_chosen_before_the_connect_and_the_accept [130],
        device_attrs::a_device_tells_its_maxima_and_refuses_more [131],
        device_attrs::a_port_tells_its_mtu_and_its_gids [131],
        device_attrs::a_datagram_that_is_too_long_for_the_path_is_refused [132],
        shared_receives::each_qp_takes_the_next_receive [],
        shared_receives::a_sender_waits_for_a_shared_receive [],
        shared_receives::the_limit_is_reported_once [],
        shared_receives::a_receive_is_pinned_until_its_own_completion_is_polled [],
        shared_receives::what_an_srq_refuses [],
        shared_receives::a_cq_has_room_for_an_srq_once [],
        shared_receives::the_end_of_a_qp_leaves_the_receives [],
        shared_receives::receives_that_are_left_are_pinned_until_the_srq_is_destroyed [],
        shared_receives::the_peer_sees_that_a_qp_has_an_srq [],
    }
    Explicit Fast {
        acks::behaviour_48_destroy_waits_for_acks_and_nobody_waits [48],
        acks::behaviour_49_a_request_counts_on_its_listener [49],
        acks::behaviour_52_migrate_waits_for_acks_and_nobody_waits [52],
        acks::behaviour_58_a_child_whose_request_is_not_acked [58],
        acks::deadlines_end_what_waits_for_acks [],
        acks::a_driver_refuses_keys_and_receipts_of_another [],
        acks::a_lost_receipt_does_not_make_an_id_immortal [],
        groups::behaviour_75_leaving_waits_for_acks_and_nobody_waits [75],
    }
    OnDelivery Slow {
        stalls::behaviour_17_what_a_second_accept_does [17],
        stalls::behaviour_19_what_a_reject_before_the_answer_does [19],
        stalls::behaviour_20_what_a_reject_after_the_answer_does [20],
        timeouts::behaviour_30_the_server_never_reads [30],
        timeouts::behaviour_31_the_client_never_reads_the_answer [31],
        timeouts::behaviour_32_a_disconnect_is_never_answered [32],
        timeouts::behaviour_33_a_full_backlog_makes_clients_wait [33],
        datagrams::behaviour_74_the_server_is_silent [74],
        timeouts::behaviour_29_nobody_there [29] needs SilentHost,
    }
    OnDelivery Fast {
        memory_register::behaviour_80_no_memory_left_to_lock [80] needs MemoryFails,
        memory_outcomes::behaviour_94_new_memory_that_cannot_be_kept_from_children [94] on All needs MemoryFails,
        memory_outcomes::behaviour_98_old_memory_that_cannot_be_given_back_to_children [98] on All needs MemoryFails,
        memory_outcomes::behaviour_95_refused_before_anything_was_touched [95, 116, 119, 122] on All needs MemoryFails,
        memory_outcomes::behaviour_95_a_driver_that_has_lost_the_registration [95, 107, 123] on All needs MemoryFails,
        memory_outcomes::behaviour_124_a_driver_that_has_switched_the_pd [124] on All needs MemoryFails,
        memory_outcomes::behaviour_96_and_the_advice_cannot_be_undone [96] on All needs MemoryFails,
        memory_outcomes::a_code_that_is_not_documented [] on All needs MemoryFails,
        memory_outcomes::behaviour_126_a_deregistration_that_fails [107, 126] on All needs MemoryFails,
        memory_fallback::every_step_of_a_fallback_fails [100] on No needs MemoryFails,
        memory_removal::the_device_goes_with_memory_registered [] needs DeviceGoes DeviceComes,
        disturbed::behaviour_10_a_client_process_is_killed [10] needs ProcessDies,
        disturbed::behaviour_36_a_neighbour_moves [36] needs SilentHost NeighbourMoves,
        disturbed::behaviour_79_a_bond_fails_over [79] needs FailOver,
        disturbed::behaviour_78_the_device_goes [78] needs DeviceGoes DeviceComes,
    }
}
