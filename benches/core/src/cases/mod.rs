//! The measured steps.

mod case;
mod deadline;
mod event;
mod life;
mod look;
mod migrate;
mod request;

pub use case::Case;
pub use deadline::{Arm, Cancel, Fire};
pub use event::{OneEvent, Replied};
pub use life::{Active, Passive};
pub use look::{Look, Nothing};
pub use migrate::Migrate;
pub use request::{Connect, SetOption};

/// Passes all cases to a macro, in the order in which they are measured: `"name" = Type` each. Those that need a
/// deadline on every id come after the semicolon.
#[macro_export]
macro_rules! for_each_case {
    ($callback:ident) => {
        $callback! {
            "nothing" = Nothing,
            "event" = OneEvent<false>,
            "event_edge" = OneEvent<true>,
            "event_with_data" = Replied,
            "request" = SetOption,
            "request_with_data" = Connect,
            "active_life" = Active,
            "passive_life" = Passive,
            "nothing_to_do" = Look,
            "migrate_0" = Migrate<0>,
            "migrate_64" = Migrate<64>;
            "arm_none" = Arm<0>,
            "arm_first" = Arm<1>,
            "cancel_none" = Cancel<0>,
            "cancel_first" = Cancel<1>,
            "fire" = Fire,
        }
    };
}

/// The numbers of other ids.
pub const SIZES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
