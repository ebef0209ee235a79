//! Ids, channels, events, acks: worlds around the real [`cmid_proto::Core`].

mod account;
mod application;
mod calls;
mod driver;
mod end;
mod invariant;
mod key_allocator;
mod scene;
pub mod scenes;
mod view;
mod witness;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cmid_proto::{Request, State, Time};
use stateright::{Model, Property};

pub use invariant::Invariant;
pub use scene::{Role, Scene};
pub use witness::Witness;
pub use world::{Action, Step, World};

use self::witness::Seen;

/// A world to be searched.
#[derive(Clone, Debug)]
pub struct Connections {
    pub(crate) scene: Scene,
    seen: Seen,
}

impl Connections {
    /// Creates a world without witnesses.
    #[must_use]
    pub fn new(scene: Scene) -> Self {
        Connections { scene, seen: Seen::default() }
    }

    /// The reason why a property does not hold in a state.
    pub(crate) fn explain(world: &World) -> String {
        match (world.environment.broken, world.clone().end()) {
            (Some(invariant), _) => format!("the last step: {invariant:?}"),
            (None, Err(invariant)) => format!("on the way from there to the end: {invariant:?}"),
            (None, Ok(())) => format!("{world:#?}"),
        }
    }
}

impl Model for Connections {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.scene)]
    }

    fn actions(&self, world: &World, all: &mut Vec<Action>) {
        if world.environment.broken.is_none() {
            world.actions(&self.scene, all);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let step = || {
            let mut next = last.clone();
            let done = next.act(&self.scene, &self.seen, action);
            (next, done)
        };
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok((next, Ok(true))) => Some(next),
            Ok((_, Ok(false))) => None,
            Ok((next, Err(invariant))) => Some(next.breaks(invariant)),
            Err(_) => Some(last.clone().breaks(Invariant::Panics)),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("no step breaks a law", |_, world: &World| world.environment.broken.is_none()),
            Property::always("the invariants of the core hold", |_, world: &World| {
                holds(|| {
                    world.core.check();
                    true
                })
            }),
            Property::always("the core counts the acks that are owed", |_, world: &World| {
                world
                    .environment
                    .accounts
                    .iter()
                    .all(|it| world.core.id_info(it.id).map_or(0, |it| it.owed) == u32::from(it.owed))
            }),
            Property::always("a destroy is never refused while an id lives", |_, world: &World| {
                let refused = |id| world.core.would_refuse(Time::ZERO, id, &Request::Destroy, Time::NEVER).is_err();
                world.core.ids().all(|id| world.core.state(id) == Some(State::Destroying) || !refused(id))
            }),
            Property::always("a request that is refused or not made changes nothing", |model: &Self, world: &World| {
                world.refusals_change_nothing(&model.scene, &model.seen)
            }),
            Property::always("the end can be reached", |_, world: &World| world.ends()),
        ];
        all.extend(self.scene.shows.iter().map(|&witness| witness.property()));
        all
    }
}

impl World {
    fn breaks(mut self, invariant: Invariant) -> Self {
        self.environment.broken = Some(invariant);
        self
    }

    /// A state with a violated invariant is reported already.
    fn ends(&self) -> bool {
        self.environment.broken.is_some() || holds(|| self.clone().end().is_ok())
    }
}

fn holds(check: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or(false)
}
