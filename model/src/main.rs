//! x
use stateright::{Checker, Model, HasDiscoveries};
use cmid_model::connections::{Connections, scenes};
fn main() {
    for scene in scenes::ALL {
        if std::env::args().nth(1).is_some_and(|n| n != scene.name) { continue }
        println!("{}", scene.name);
        let t = std::time::Instant::now();
        let c = Connections::new(scene.clone()).checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(4_000_000).spawn_bfs().join();
        println!("{} states, {} transitions, depth {}, {:?}", c.unique_state_count(), c.state_count(), c.max_depth(), t.elapsed());
        for (n,p) in c.discoveries() { if c.discovery_classification(n).to_string()!="example" { println!("{n}: {p:?}"); } } for p in c.model().shows() { if c.discovery(p.name()).is_none() {println!("never: {}", p.name());} }
    }
}
