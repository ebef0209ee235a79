//! The scenarios: small functions, each with the number of its row in its name where it has one.

mod acks;
mod bad_input;
mod channels;
mod leaks;
mod life;
mod migration;
mod refusals;
mod states;
mod sync;
mod threads;
mod wrong_state;

use cmid_proto::Acks;

use crate::{Bench, Check, Failure, Lab};

/// One thing to show, on any lab.
pub struct Scenario<L: Lab> {
    /// Its name: what is shown, or `row_N_...`.
    pub name: &'static str,
    acks: Acks,
    steps: fn(&mut Bench<'_, L>) -> Check,
}

impl<L: Lab> std::fmt::Debug for Scenario<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<L: Lab> Scenario<L> {
    /// Goes through the steps with two fresh drivers; afterwards neither has a complaint.
    ///
    /// # Errors
    /// The first difference from what is expected.
    pub fn run(&self, lab: &L) -> Result<(), Failure> {
        let mut bench = Bench::new(lab, self.acks)?;
        (self.steps)(&mut bench)?;
        bench.clean()
    }
}

macro_rules! list {
    ($($acks:ident { $($module:ident :: $name:ident,)+ })+) => {
        /// All scenarios, in the order in which they are best read.
        #[must_use]
        pub fn scenarios<L: Lab>() -> Vec<Scenario<L>> {
            vec![$($(
                Scenario { name: stringify!($name), acks: Acks::$acks, steps: $module::$name },
            )+)+]
        }
    };
}

list! {
    OnDelivery {
        life::row_1_connect_with_qps,
        life::row_2_disconnect_answered_then_time_wait,
        life::row_3_disconnect_answered_by_destroy,
        life::row_4_disconnect_answered_before_it_is_read,
        life::row_6_connect_without_qps,
        life::row_7_parameters_are_mirrored_and_clamped,
        life::row_9_destroyed_while_established,
        refusals::row_11_no_listener,
        refusals::row_12_listener_on_another_address,
        refusals::row_13_reject_with_private_data,
        refusals::row_16_private_data_too_long,
        refusals::row_21_the_client_rejects_the_answer,
        wrong_state::every_refusal_is_the_devices_own,
        wrong_state::what_would_harm_is_refused,
        bad_input::row_39_bind,
        bad_input::row_40_listen,
        bad_input::row_41_no_route_and_out_of_order,
        bad_input::row_42_nobody_answers,
        bad_input::row_45_destroyed_while_resolving,
        bad_input::stale_keys_and_long_private_data,
        bad_input::deadlines_end_requests,
        migration::row_50_in_every_state,
        migration::row_50_in_every_state_with_an_event_pending,
        migration::row_51_a_pending_event_is_delivered_without_another_wake_up,
        migration::row_53_to_the_same_channel_goes_last,
        migration::row_57_to_a_channel_that_is_not_there,
        migration::row_58_a_child_before_its_accept,
        channels::two_ids_on_one_channel_keep_their_orders,
        channels::a_channel_in_use_is_not_closed,
        sync::row_59_a_child_is_accepted_synchronously,
        sync::row_61_refused_connections,
        sync::row_62_a_dead_address,
        sync::row_63_connect_without_a_qp,
        sync::row_64_the_peer_was_first,
        sync::in_and_out_with_an_event_pending,
        threads::an_accepted_id_goes_to_another_thread,
        leaks::nothing_is_left_after_200_cycles,
    }
    Explicit {
        acks::row_48_destroy_waits_for_acks_and_nobody_waits,
        acks::row_49_a_request_counts_on_its_listener,
        acks::row_52_migrate_waits_for_acks_and_nobody_waits,
        acks::deadlines_end_what_waits_for_acks,
    }
}
