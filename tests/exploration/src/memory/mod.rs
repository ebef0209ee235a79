//! Protection domains and memory regions: worlds around the real [`cmid_proto::memory`].

mod device;
mod invariant;
mod ledger;
mod scene;
pub mod scenes;
mod witness;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use stateright::{Model, Property};

pub use device::Answer;
pub use invariant::Invariant;
pub use scene::{Scene, Truth};
pub use witness::Witness;
pub use world::{Action, World};

use self::witness::{Seen, Witnessed};
use crate::search::Searched;

/// A world to be searched.
#[derive(Clone, Debug)]
pub struct Memory {
    scene: Scene,
    seen: Seen,
}

impl Memory {
    /// Creates a world without witnesses.
    #[must_use]
    pub fn new(scene: Scene) -> Self {
        Memory { scene, seen: Seen::default() }
    }
}

impl Witnessed for Memory {
    fn seen(&self) -> &Seen {
        &self.seen
    }
}

impl Searched for Memory {
    fn name(&self) -> &'static str {
        self.scene.name
    }

    fn target(&self) -> &'static str {
        self.scene.target
    }

    fn explain(&self, world: &World) -> String {
        match (world.broken, world.clone().end(self.scene.buffers)) {
            (Some(invariant), _) => format!("the last step: {invariant:?}"),
            (None, Err(invariant)) => format!("on the way from there to the end: {invariant:?}"),
            (None, Ok(())) => format!("{world:#?}"),
        }
    }
}

impl Model for Memory {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.scene)]
    }

    fn actions(&self, world: &World, all: &mut Vec<Action>) {
        if world.broken.is_none() {
            world.actions(&self.scene, all);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let step = || {
            let mut next = last.clone();
            next.broken = next.step(&self.seen, action).err();
            next
        };
        Some(catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
            let mut panicked = last.clone();
            panicked.broken = Some(Invariant::Panics);
            panicked
        }))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("no step breaks a law", |_, world: &World| world.broken.is_none()),
            Property::always("nothing that the device may refer to is with the application", |_, world: &World| {
                world.hands_are_safe()
            }),
            Property::always("the uses of PDs are counted as the device has them", |_, world: &World| {
                world.counts_agree()
            }),
            Property::always("a region knows its registration", |_, world: &World| world.regions_tell_the_truth()),
            Property::always("an outcome that was not asked for changes nothing", |_, world: &World| {
                world.refuses_other_outcomes()
            }),
            Property::always("a refused request changes nothing", |model: &Self, world: &World| {
                world.refusals_change_nothing(&model.seen)
            }),
            Property::always("everything can be freed, once", |model: &Self, world: &World| {
                world.broken.is_some()
                    || catch_unwind(AssertUnwindSafe(|| world.clone().end(model.scene.buffers).is_ok()))
                        .unwrap_or(false)
            }),
        ];
        all.extend(self.scene.shows.iter().map(|&witness| witness.property()));
        all
    }
}
