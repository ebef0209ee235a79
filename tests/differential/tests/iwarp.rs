//! Programs for soft-iWARP: they contain what it offers, reach their goals on the simulator, and show a difference.

use cmid_differential::campaign::{FIRST_SEED, Outcome, Plan, run};
use cmid_differential::generate::{self, Kind, NUMBERS};
use cmid_differential::judge::{Reality, Run};
use cmid_differential::program::{Action, IdCall, Network, Program};
use cmid_differential::simulated::{Schedule, schedules, simulate};
use cmid_differential::trace::Seen;
use cmid_proto::PortSpace;
use cmid_sim::Flavour;

const KIND: Kind = Kind::Calls(Network::Iwarp);

/// The simulator in the place of the kernel.
struct Simulator {
    /// Every private data of an event is reported as one byte longer.
    bent: bool,
}

impl Reality for Simulator {
    fn run(&mut self, programs: &[Program]) -> anyhow::Result<Vec<Run>> {
        let one = |program: &Program| {
            let mut ran = simulate(program, NUMBERS, Flavour::Linux6_12, &Schedule::default());
            for line in ran.trace.a.iter_mut().filter(|_| self.bent) {
                if let Seen::Event { rest, .. } = &mut line.what {
                    rest.push('0');
                }
            }
            Run::simulated(NUMBERS, ran)
        };
        Ok(programs.iter().map(one).collect())
    }

    fn flavour(&self) -> Flavour {
        Flavour::Linux6_12
    }
}

fn campaign(bent: bool, programs: u64) -> (Plan, Outcome) {
    let seeds = FIRST_SEED..FIRST_SEED + programs;
    let plan = Plan { kind: KIND, seeds, batch: 10, limit: None, least: 1, deadline: None, failures: 1, shrink: false };
    let outcome = run(&plan, &mut Simulator { bent }, |_| {});
    (plan, outcome.unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn a_hundred_and_twenty_programs_reach_all_goals() {
    let (plan, outcome) = campaign(false, 120);
    assert_eq!((outcome.agreed, outcome.disagreements.len()), (120, 0));
    assert_eq!(outcome.objections(&plan, true), Vec::<String>::new());
}

#[test]
fn a_difference_is_found_and_its_program_names_its_transport() {
    let (_, outcome) = campaign(true, 20);
    let found = outcome.disagreements.first().unwrap_or_else(|| panic!("it was not found"));
    let text = found.to_string();
    assert!(text.contains("--transport siw --program") && text.contains(r#""network":"Iwarp""#), "{text}");
    assert_eq!(
        serde_json::from_str::<Program>(&serde_json::to_string(&found.program).unwrap()).unwrap(),
        found.program
    );
}

#[test]
fn programs_have_no_datagrams_and_no_groups_and_no_call_that_blocks() {
    for seed in 0..30 {
        let program = KIND.program(seed);
        assert!(generate::is_safe(&program), "{program}");
        assert!(schedules(&program).len() <= 16, "{program}");
        for step in &program.steps {
            let datagram = matches!(step.action, Action::Create { space: PortSpace::Udp | PortSpace::Ipoib, .. });
            let group = matches!(step.action, Action::On(_, IdCall::Join { .. } | IdCall::Leave(_)));
            assert!(!datagram && !group, "{program}");
        }
    }
}
