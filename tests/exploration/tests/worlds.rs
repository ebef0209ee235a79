//! Every state of every world obeys the laws, and everything that a world is to show turns up in it.

use cmid_exploration::connections::{self, Connections, Scene, Witness, scenes};
use cmid_exploration::memory::{self, Memory};
use cmid_exploration::search;

macro_rules! worlds {
    ($($(#[$ignored:meta])? $name:ident: $model:ident($scene:expr);)+) => {
        $(
            #[test]
            $(#[$ignored])?
            fn $name() {
                let report = search($model::new($scene));
                println!("{report}");
                assert!(report.is_good(), "{report}");
            }
        )+
    };
}

worlds! {
    mover_trouble: Connections(scenes::MOVER_TROUBLE);
    listener: Connections(scenes::LISTENER);
    listener_removed: Connections(scenes::LISTENER_REMOVED);
    dialer_deadlines: Connections(scenes::DIALER_DEADLINES);
    memory_one: Memory(memory::scenes::ONE);
    movers: Connections(scenes::MOVERS);
    movers_full: Connections(scenes::MOVERS_FULL);
    mover_deadlines: Connections(scenes::MOVER_DEADLINES);
    dialer: Connections(scenes::DIALER);
    dialer_sync: Connections(scenes::DIALER_SYNC);
    listener_trouble: Connections(scenes::LISTENER_TROUBLE);
    listener_sync: Connections(scenes::LISTENER_SYNC);
}

/// Those that take minutes without optimisation.
mod large {
    use super::*;

    worlds! {
        #[cfg_attr(debug_assertions, ignore = "only with --release")]
        memory_two: Memory(memory::scenes::TWO);
        #[cfg_attr(debug_assertions, ignore = "only with --release")]
        memory_checks_first: Memory(memory::scenes::CHECKS_FIRST);
    }
}

#[test]
fn no_witness_is_asked_for_in_vain() {
    let shown: Vec<_> = scenes::ALL.iter().flat_map(|scene| scene.shows).collect();
    for witness in Witness::ALL {
        assert!(shown.contains(&witness), "{witness:?} is shown by no world");
    }
    for witness in memory::Witness::ALL {
        let shown = memory::scenes::ALL.iter().any(|scene| scene.shows.contains(witness));
        assert!(shown, "{witness:?} is shown by no world");
    }
}

#[test]
fn what_does_not_turn_up_is_told() {
    let poor = Scene { shows: &[Witness::Removed], roles: &[connections::Role::Mover], ..scenes::MOVERS };
    let report = search(Connections::new(poor));
    assert_eq!((report.wrong.len(), report.missing.as_slice()), (0, &["Removed"][..]));
    assert!(!report.is_good());
}
