//! Every state of every world obeys the laws, and everything that a world is to show turns up in it.

use cmid_exploration::connections::{Connections, Role, Scene, Witness, scenes};
use cmid_exploration::search;

macro_rules! worlds {
    ($($name:ident: $scene:ident;)+) => {
        $(
            #[test]
            fn $name() {
                let report = search(Connections::new(scenes::$scene));
                println!("{report}");
                assert!(report.is_good(), "{report}");
            }
        )+
    };
}

worlds! {
    mover_trouble: MOVER_TROUBLE;
    listener: LISTENER;
    listener_removed: LISTENER_REMOVED;
    dialer_deadlines: DIALER_DEADLINES;
    movers: MOVERS;
    movers_full: MOVERS_FULL;
    mover_deadlines: MOVER_DEADLINES;
    dialer: DIALER;
    dialer_sync: DIALER_SYNC;
    listener_trouble: LISTENER_TROUBLE;
    listener_sync: LISTENER_SYNC;
}

#[test]
fn no_witness_is_asked_for_in_vain() {
    let shown: Vec<_> = scenes::ALL.iter().flat_map(|scene| scene.shows).collect();
    for witness in Witness::ALL {
        assert!(shown.contains(&witness), "{witness:?} is shown by no world");
    }
}

#[test]
fn what_does_not_turn_up_is_told() {
    let poor = Scene { shows: &[Witness::Removed], roles: &[Role::Mover], ..scenes::MOVERS };
    let report = search(Connections::new(poor));
    assert_eq!((report.wrong.len(), report.missing.as_slice()), (0, &["Removed"][..]));
    assert!(!report.is_good());
}
