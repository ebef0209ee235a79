//! The worlds that are searched.

use super::{Role, Scene, Witness};

/// Two ids with events, on two channels, that move and go.
pub const MOVERS: Scene = Scene {
    name: "movers",
    about: "2 ids x 2 channels, explicit acks: events, migrations, destructions",
    roles: &[Role::Mover, Role::Mover],
    events: 2,
    shows: &[
        Witness::MovedWithUnread,
        Witness::MovedWithUndelivered,
        Witness::MovedAfterAcks,
        Witness::DestroyedAfterAcks,
        Witness::DestroyOvertookMove,
        Witness::Refused,
    ],
    ..Scene::PLAIN
};

const SOLOX: Scene = Scene { name: "solox", roles: &[Role::Mover], slow_calls: true, failures: true, in_place: true, removal: true, to_sync: 2, shows: &[], ..MOVERS };
const SOLOD: Scene = Scene { name: "solod", roles: &[Role::Mover], deadlines: true, failures: true, slow_calls: true, shows: &[], ..MOVERS };
const PAIRS: Scene = Scene { name: "pairs", slow_calls: true, events: 1, events_in_all: 1, shows: &[], ..MOVERS };
const DIAL: Scene = Scene { name: "dial", roles: &[Role::Dialer], events: 2, shows: &[Witness::Established], ..MOVERS };
const DIALD: Scene = Scene { name: "diald", deadlines: true, failures: true, still: &[Role::Dialer], events:2, ..DIAL };
const DIALX: Scene = Scene { name: "dials", deadlines: false, to_sync: 2, channels: &[cmid_proto::Acks::OnDelivery], events:2, ..DIAL };
const LISTEN: Scene = Scene { name: "listen", roles: &[Role::Listener], children: 1, events: 1, events_in_all: 1, shows: &[Witness::ChildDelivered], still: &[Role::Child], ..MOVERS };
const LISTENS: Scene = Scene { name: "listens", to_sync: 1, channels: &[cmid_proto::Acks::OnDelivery], ..LISTEN };
/// All that are searched.
pub const ALL: &[Scene] = &[MOVERS, SOLOX, SOLOD, PAIRS, DIAL, DIALX, DIALD, LISTEN, LISTENS];
