//! The transports, and the rules of events that differ on iWARP.

use crate::columns::columns;
use crate::state::State;
use crate::table::{self, EventColumn, EventRule};

columns! {
    /// The transport of an RDMA device (`ibv_transport_type` of ibv_get_device_list(3)). It determines the messages that
    /// make and end a connection, and the types of events.
    #[doc(alias("ibv_transport_type", "IBV_TRANSPORT_IB", "IBV_TRANSPORT_IWARP"))]
    #[derive(Default)]
    pub enum Transport {
        /// The transport of InfiniBand, also over Ethernet (RoCE).
        #[default]
        InfiniBand = "InfiniBand",
        /// iWARP: RDMA over TCP (RFC 5040 to 5044, 6581). Each connection has its own TCP connection.
        Iwarp = "iWARP",
    }
}

impl Transport {
    /// Returns the effect of an event on an id with a device of this transport. For InfiniBand it is the cell of
    /// [`EVENTS`](table::EVENTS). On iWARP some cells differ:
    ///
    /// - CONNECT_RESPONSE, ROUTE_ERROR, TIMEWAIT_EXIT, MULTICAST_JOIN and MULTICAST_ERROR are faults: no function of
    ///   the kernel reports them (`cma_iw_handler`, `cma_resolve_iw_route`).
    /// - UNREACHABLE is late on an id that does not connect: the kernel watches the link addresses of RoCE only
    ///   (`cma_netevent_callback`).
    /// - DISCONNECTED ends the connection at once: the TCP connection has ended on both sides, so no answer is due and
    ///   no packet can arrive any more. A teardown ends with this event. So does the time wait that begins with the
    ///   deadline of a disconnect.
    #[must_use]
    pub const fn event_rule(self, state: State, column: EventColumn) -> EventRule {
        let rule = table::event_rule(state, column);
        match self {
            Transport::InfiniBand => rule,
            Transport::Iwarp if matches!(state, State::Removed | State::Destroying) => rule,
            Transport::Iwarp => match (rule, column) {
                (
                    _,
                    EventColumn::ConnectResponse
                    | EventColumn::RouteError
                    | EventColumn::TimewaitExit
                    | EventColumn::MulticastJoin
                    | EventColumn::MulticastError,
                ) => EventRule::Fault,
                (EventRule::Go(_), EventColumn::Unreachable) if !matches!(state, State::Connecting) => EventRule::Late,
                (EventRule::Go(_), EventColumn::Disconnected) => EventRule::Go(State::Closed),
                (_, EventColumn::Disconnected) if matches!(state, State::TimeWait) => EventRule::Go(State::Closed),
                (rule, _) => rule,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iwarp_id_is_in_no_state_of_infiniband_alone() {
        for state in State::ALL {
            for column in EventColumn::ALL {
                let rule = Transport::Iwarp.event_rule(state, column);
                let next = match rule {
                    EventRule::Go(next) if next != state => next,
                    EventRule::Go(_) | EventRule::Late | EventRule::Fault => continue,
                };
                assert_ne!(next, State::Responded, "{state}: {column}");
                assert_ne!(next, State::PeerClosed, "{state}: {column}");
                // On iWARP only the deadline of a disconnect leads to a time wait.
                assert!(next != State::TimeWait || column == EventColumn::Deadline, "{state}: {column}");
            }
        }
    }

    #[test]
    fn a_teardown_ends_with_the_tcp_connection() {
        use State::{Accepting, Closing, Connected, Connecting, Disconnecting, TimeWait};
        for state in [Connecting, Accepting, Connected, Disconnecting, Closing, TimeWait] {
            let rule = Transport::Iwarp.event_rule(state, EventColumn::Disconnected);
            assert_eq!(rule, EventRule::Go(State::Closed), "{state}");
        }
        assert_eq!(Transport::Iwarp.event_rule(State::Closing, EventColumn::TimewaitExit), EventRule::Fault);
        assert_eq!(
            Transport::InfiniBand.event_rule(State::Closing, EventColumn::TimewaitExit),
            EventRule::Go(State::Closed)
        );
    }

    #[test]
    fn an_id_without_a_device_or_about_to_be_destroyed_has_the_rules_of_the_table() {
        for (state, column) in [State::Removed, State::Destroying]
            .into_iter()
            .flat_map(|state| EventColumn::ALL.map(|column| (state, column)))
        {
            let rule = Transport::Iwarp.event_rule(state, column);
            assert_eq!(rule, table::event_rule(state, column), "{state}: {column}");
        }
    }

    #[test]
    fn a_peer_is_unreachable_only_to_an_id_that_connects() {
        for state in State::ALL {
            let rule = table::event_rule(state, EventColumn::Unreachable);
            let expected = match rule {
                EventRule::Go(_) if state != State::Connecting => EventRule::Late,
                EventRule::Go(_) | EventRule::Late | EventRule::Fault => rule,
            };
            assert_eq!(Transport::Iwarp.event_rule(state, EventColumn::Unreachable), expected, "{state}");
        }
        assert!(matches!(
            Transport::Iwarp.event_rule(State::Connecting, EventColumn::Unreachable),
            EventRule::Go(State::Failed)
        ));
    }

    #[test]
    fn what_the_transports_share_has_one_rule() {
        let shared = [
            EventColumn::AddrResolved,
            EventColumn::AddrError,
            EventColumn::RouteResolved,
            EventColumn::ConnectRequest,
            EventColumn::ConnectError,
            EventColumn::Rejected,
            EventColumn::Established,
            EventColumn::DeviceRemoval,
            EventColumn::AddrChange,
            EventColumn::Other,
            EventColumn::Deadline,
        ];
        for (state, column) in State::ALL.into_iter().flat_map(|state| shared.map(|column| (state, column))) {
            assert_eq!(
                Transport::Iwarp.event_rule(state, column),
                table::event_rule(state, column),
                "{state}: {column}"
            );
        }
    }
}
