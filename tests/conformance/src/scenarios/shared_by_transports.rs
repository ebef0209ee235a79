//! The names of the scenarios that hold on InfiniBand and on iWARP.

/// The scenarios of both transports.
pub(super) const SHARED: &[&str] = &[
    "behaviour_39_bind",
    "behaviour_40_listen",
    "behaviour_40_an_address_that_is_used_twice",
    "behaviour_41_no_route_and_out_of_order",
    "behaviour_42_nobody_answers",
    "behaviour_45_destroyed_while_resolving",
    "stale_keys_and_long_private_data",
    "behaviour_46_reading_an_empty_channel_returns_at_once",
    "behaviour_48_destroy_waits_for_acks_and_nobody_waits",
    "behaviour_51_a_pending_event_is_delivered_without_another_wake_up",
    "behaviour_53_to_the_same_channel_goes_last",
    "behaviour_57_to_a_channel_that_is_not_there",
    "behaviour_62_a_dead_address",
    "behaviour_69_calls_return_before_their_events",
    "a_channel_in_use_is_not_closed",
    "a_driver_refuses_keys_and_receipts_of_another",
    "deadlines_end_what_waits_for_acks",
    "behaviour_80_what_cannot_be_registered",
    "the_device_of_an_id_is_known_once_it_has_one",
    "a_message_is_gathered_and_scattered",
    "a_batch_is_posted_completely_or_not_at_all",
    "an_unsignaled_request_ends_with_a_later_one",
    "until_the_completion_is_polled",
];
