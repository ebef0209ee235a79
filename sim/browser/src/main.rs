//! A world of three hosts, as a program: `cmid-browser SEED [FAULT:HOST:NANOSECONDS]...` prints the sequence chart of its first
//! 20 seconds. The page `docs/browser.html` runs it as WebAssembly: from the start with each new fault, because the same
//! seed and faults give the same rows.
//!
//! It is a program of WASI, so it needs no exported functions, and no unsafe code.
#![forbid(unsafe_code)]

mod client;
mod link;
mod server;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use cmid_proto::Time;
use cmid_sim::{Config, Fault, World};

use client::Client;
use server::Server;

/// The time that a world lasts. Its chart has fewer rows than [`World::chart`] draws.
const SPAN: Duration = Duration::from_secs(20);

/// The time that a fault lasts.
const LASTS: Duration = Duration::from_millis(600);

const HOSTS: [&str; 3] = ["server", "alice", "bob"];

/// The most faults of a world. More are of no use to a reader.
const MOST: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let written = run(&arguments)
        .and_then(|world| std::io::stdout().write_all(world.chart().as_bytes()).map_err(|error| error.to_string()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // Nobody can be told if this fails.
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the world with this seed and these faults. An error says what is wrong with the arguments.
fn run(arguments: &[String]) -> Result<World, String> {
    let (seed, faults) = arguments.split_first().ok_or("a seed is missing")?;
    let seed = seed.parse().map_err(|_| format!("{seed:?} is no seed"))?;
    if faults.len() > MOST {
        return Err(format!("more than {MOST} faults"));
    }
    let mut world = World::logged(&Config { seed, ..Config::default() });
    let [server, alice, bob] = HOSTS;
    world.host(server, Server::new);
    world.host(alice, Client::new);
    world.host(bob, Client::new);
    for text in faults {
        let (fault, host, begin) = parse(text).ok_or_else(|| format!("{text:?} is no fault"))?;
        let other = if host == server { alice } else { server };
        world.fault(fault, host, other, begin, LASTS);
    }
    world.run_for(SPAN);
    Ok(world)
}

/// `FAULT:HOST:NANOSECONDS`; the fault is the name of a [`Fault`].
fn parse(text: &str) -> Option<(Fault, &'static str, Time)> {
    let [fault, host, begin] = text.split(':').collect::<Vec<_>>()[..] else { return None };
    let fault = Fault::ALL.into_iter().find(|known| format!("{known:?}") == fault)?;
    let host = HOSTS.into_iter().find(|known| *known == host)?;
    Some((fault, host, Time(begin.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::{HOSTS, run};

    /// The faults that the page has buttons for.
    const ON_THE_PAGE: [&str; 6] = ["Crash", "PowerLoss", "Pause", "LinkDown", "Loss", "DeviceRemoval"];

    fn trace(arguments: &str) -> String {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        run(&arguments).unwrap_or_else(|error| panic!("{error}")).trace()
    }

    #[test]
    fn the_same_seed_and_faults_give_the_same_world_and_other_ones_another() {
        let world = trace("7 Loss:alice:5000000000");
        assert_eq!(world, trace("7 Loss:alice:5000000000"));
        assert_ne!(world, trace("7"));
        assert_ne!(trace("7"), trace("8"));
    }

    #[test]
    fn a_fault_changes_nothing_before_it() {
        let (with, without) = (trace("3 Crash:server:4000000001"), trace("3"));
        let before = |trace: &str| trace.lines().take_while(|line| *line < "4.000000001").count();
        assert!(before(&with) > 50);
        assert!(with.lines().zip(without.lines()).take(before(&with)).all(|(one, other)| one == other));
        assert!(with.contains("4.000000001 s  server: fault: crash of server"), "{with}");
    }

    /// The fault is over after 4 seconds; the world lasts for 20.
    #[test]
    fn after_each_fault_of_the_page_both_clients_are_served_again_on_a_channel_that_they_move_to() {
        for fault in ON_THE_PAGE {
            for host in HOSTS {
                let trace = trace(&format!("11 {fault}:{host}:3333000000"));
                let seconds = |line: &str| line.split('.').next().and_then(|seconds| seconds.parse::<u64>().ok());
                let late: Vec<&str> = trace.lines().filter(|line| seconds(line) >= Some(7)).collect();
                for client in ["alice", "bob"] {
                    let answers =
                        late.iter().filter(|line| line.contains(&format!("server -> {client}: send"))).count();
                    assert!(answers > 20, "{fault} of {host}: {client} has {answers} answers\n{trace}");
                }
                assert!(late.iter().any(|line| line.contains("has moved id")), "{fault} of {host}");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_the_arguments_is_said() {
        let error = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            run(&arguments).map(drop).expect_err("it is wrong")
        };
        assert_eq!(error(&[]), "a seed is missing");
        assert_eq!(error(&["-1"]), "\"-1\" is no seed");
        assert_eq!(error(&["1", "Crash:carol:1"]), "\"Crash:carol:1\" is no fault");
        assert_eq!(error(&vec!["1"; 102]), "more than 100 faults");
    }
}
