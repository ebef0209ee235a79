//! The steps that are measured.

mod deadline;
mod event;
pub(crate) mod life;
mod look;
mod migrate;
mod request;

pub use deadline::{Arm, Cancel, Fire};
pub use event::{Changed, Replied, Told};
pub use life::{Active, Passive};
pub use look::{Look, Nothing, Poll};
pub use migrate::Migrate;
pub use request::{Connect, SetOption};

use crate::level::Level;
use crate::prepared::Prepared;

/// A step that is repeated. Before and after it the stage is the same.
pub trait Case<L: Level>: Sized {
    /// What a step is about.
    type Input;
    /// What a step tells of itself.
    type Output;

    /// What all steps share.
    fn new(prepared: &mut Prepared<L>) -> Self;

    /// Leads to where the step begins. Not measured.
    fn prepare(&mut self, prepared: &mut Prepared<L>) -> Self::Input;

    /// What is measured.
    fn step(&mut self, prepared: &mut Prepared<L>, input: Self::Input) -> Self::Output;

    /// Ends the program if the step has led to anything else than it is there for; and leads back. Not measured.
    fn check(&mut self, prepared: &mut Prepared<L>, output: Self::Output);

    /// What all steps shared goes.
    fn leave(self, _: &mut Prepared<L>) {}
}

/// Hands all cases to a macro, in the order in which they are measured: `"name" = Type` each. Those that need a stage on
/// which every id has a deadline come after the semicolon.
#[macro_export]
macro_rules! for_each_case {
    ($callback:ident) => {
        $callback! {
            "nothing" = Nothing,
            "event" = Told,
            "event_of_change" = Changed,
            "event_with_data" = Replied,
            "request" = SetOption<false>,
            "request_in_steps" = SetOption<true>,
            "request_with_data" = Connect,
            "active_life" = Active,
            "passive_life" = Passive,
            "no_event" = Poll,
            "nothing_to_do" = Look,
            "migrate_0" = Migrate<0, false>,
            "migrate_1" = Migrate<1, false>,
            "migrate_8" = Migrate<8, false>,
            "migrate_64" = Migrate<64, false>,
            "migrate_64_mixed" = Migrate<64, true>;
            "arm_none" = Arm<0>,
            "arm_first" = Arm<1>,
            "arm_last" = Arm<2>,
            "cancel_none" = Cancel<0>,
            "cancel_first" = Cancel<1>,
            "cancel_last" = Cancel<2>,
            "fire" = Fire,
        }
    };
}

/// How many ids there are besides.
pub const SIZES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];
