//! The explored worlds.

use cmid_proto::{Acks, Limits};

use super::scene::{Role, Scene};
use super::witness::Witness;

/// Two ids with events on two channels, with migrations and destroys.
pub const MOVERS: Scene = Scene {
    name: "movers",
    target: "2 ids x 2 channels x 2 events, explicit acks: migrations, destructions",
    roles: &[Role::Mover, Role::Mover],
    shows: &[
        Witness::MovedWithUnread,
        Witness::MovedWithUndelivered,
        Witness::MovedAfterAcks,
        Witness::DestroyedAfterAcks,
        Witness::DestroyOvertookMove,
        Witness::LateEvent,
        Witness::Refused,
        Witness::Ended,
    ],
    ..Scene::PLAIN
};

/// One id with all kinds of failures.
pub const MOVER_TROUBLE: Scene = Scene {
    name: "mover-trouble",
    target: "1 id x 2 channels x 2 events; failing calls, device removal, synchronous mode, moves in place, lost ack tokens",
    roles: &[Role::Mover],
    lost: true,
    failures: true,
    in_place: true,
    removal: true,
    sync: true,
    private_channels: 2,
    shows: &[
        Witness::NotMoved,
        Witness::NotDestroyed,
        Witness::Removed,
        Witness::MovedAfterAcks,
        Witness::DestroyedAfterAcks,
        Witness::DestroyedWithoutAcks,
    ],
    ..MOVERS
};

/// One id with deadlines on requests.
pub const MOVER_DEADLINES: Scene = Scene {
    name: "mover-deadlines",
    target: "1 id x 2 channels x 2 events; failing calls, deadlines on migrations and destructions",
    roles: &[Role::Mover],
    failures: true,
    deadlines: true,
    shows: &[Witness::MoveTimedOut, Witness::DestroyTimedOut, Witness::NotDestroyed, Witness::NotMoved],
    ..MOVERS
};

/// More events than the core has room for.
pub const MOVERS_FULL: Scene = Scene {
    name: "movers-full",
    target: "2 ids x 2 channels x 2 events, acked on delivery, where the core has room for one",
    channels: &[Acks::OnDelivery, Acks::OnDelivery],
    limits: Limits { events: 1, ..Scene::PLAIN.limits },
    shows: &[Witness::NoRoom, Witness::MovedWithUnread, Witness::MovedWithUndelivered],
    ..MOVERS
};

/// A complete connection with migrations.
pub const DIALER: Scene = Scene {
    name: "dialer",
    target: "an active connection, 2 channels x 2 events; failing calls, device removal, migrations at any time",
    roles: &[Role::Dialer],
    failures: true,
    removal: true,
    shows: &[Witness::Established, Witness::Removed, Witness::LateEvent, Witness::MovedWithUnread, Witness::NotMoved],
    ..MOVERS
};

/// As [`DIALER`], with deadlines.
pub const DIALER_DEADLINES: Scene = Scene {
    name: "dialer-deadlines",
    target: "an active connection, 2 events, explicit acks; failing calls, deadlines on everything",
    roles: &[Role::Dialer],
    still: &[Role::Dialer],
    failures: true,
    deadlines: true,
    shows: &[Witness::Established, Witness::DeadlinePassed, Witness::LateEvent, Witness::DestroyTimedOut],
    ..MOVERS
};

/// As [`DIALER`], with changes to and from synchronous mode.
pub const DIALER_SYNC: Scene = Scene {
    name: "dialer-sync",
    target: "an active connection, 2 events; into synchronous mode and out of it, deadlines",
    roles: &[Role::Dialer],
    channels: &[Acks::OnDelivery],
    deadlines: true,
    sync: true,
    private_channels: 1,
    shows: &[Witness::Established, Witness::SyncEnded, Witness::DeadlinePassed, Witness::MovedWithUndelivered],
    ..MOVERS
};

/// A listener that moves with its requests.
pub const LISTENER: Scene = Scene {
    name: "listener",
    target: "a listener and 1 request, 2 channels, explicit acks: migrations, destructions",
    roles: &[Role::Listener],
    still: &[Role::Child],
    events: 1,
    events_in_all: 1,
    children: 1,
    private_channels: 1,
    shows: &[
        Witness::ChildDelivered,
        Witness::ListenerMovedWithRequests,
        Witness::RequestsDiscarded,
        Witness::Established,
        Witness::MovedAfterAcks,
    ],
    ..MOVERS
};

/// As [`LISTENER`], with failures.
pub const LISTENER_TROUBLE: Scene = Scene {
    name: "listener-trouble",
    target: "a listener and 1 request, 1 channel; failing calls, device removal",
    channels: &[Acks::Explicit],
    failures: true,
    removal: true,
    shows: &[Witness::ChildDelivered, Witness::LateRequest, Witness::NotDestroyed, Witness::Removed],
    ..LISTENER
};

/// A listener in synchronous mode.
pub const LISTENER_SYNC: Scene = Scene {
    name: "listener-sync",
    target: "a listener and 1 request, into synchronous mode and out of it, deadlines",
    channels: &[Acks::OnDelivery],
    deadlines: true,
    sync: true,
    private_channels: 2,
    shows: &[Witness::ChildDelivered, Witness::SyncEnded],
    ..LISTENER
};

/// A listener with a removed device and failing calls.
pub const LISTENER_REMOVED: Scene = Scene {
    name: "listener-removed",
    target: "a listener, 1 channel and synchronous mode; its device goes, calls fail",
    channels: &[Acks::OnDelivery],
    children: 0,
    failures: true,
    removal: true,
    sync: true,
    private_channels: 3,
    shows: &[Witness::Removed, Witness::NotDestroyed, Witness::NotMoved],
    ..LISTENER
};

/// The worlds of every run.
pub const ALL: &[Scene] = &[
    MOVERS,
    MOVERS_FULL,
    MOVER_TROUBLE,
    MOVER_DEADLINES,
    DIALER,
    DIALER_DEADLINES,
    DIALER_SYNC,
    LISTENER,
    LISTENER_TROUBLE,
    LISTENER_SYNC,
    LISTENER_REMOVED,
];

/// Worlds with wider bounds, which take minutes.
pub const LARGE: &[Scene] = &[
    Scene { name: "movers-4", events_in_all: 4, failures: true, ..MOVERS },
    Scene { name: "mover-trouble-3", events: 3, events_in_all: 3, private_channels: 3, ..MOVER_TROUBLE },
    Scene { name: "dialer-3", events: 3, events_in_all: 3, deadlines: true, ..DIALER },
    Scene { name: "dialer-sync-2", private_channels: 2, failures: true, ..DIALER_SYNC },
    Scene { name: "listener-2", children: 2, ..LISTENER },
    Scene { name: "listener-sync-3", private_channels: 3, ..LISTENER_SYNC },
    Scene { name: "listener-trouble-2", private_channels: 2, events: 2, events_in_all: 2, ..LISTENER_TROUBLE },
];
