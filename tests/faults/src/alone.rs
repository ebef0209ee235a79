//! The processes of lanes and of peers.

use std::io::{BufRead as _, Write as _};

use cmid_harness::{Check, DriverName, Failure, OnBlocking, OnEpoll, OnMio, OnTokio};

use crate::lanes::{FAILED, PASSED};
use crate::{Killed, Link, LinkEnv, play, scenarios};

macro_rules! with_env {
    ($driver:expr, $env:ident = $make:ident($link:expr) => $then:expr) => {
        match $driver {
            DriverName::Mio => {
                let $env = LinkEnv::<OnMio<_>>::$make($link);
                $then
            }
            DriverName::Epoll => {
                let $env = LinkEnv::<OnEpoll<_>>::$make($link);
                $then
            }
            DriverName::Blocking => {
                let $env = LinkEnv::<OnBlocking<_>>::$make($link);
                $then
            }
            DriverName::Tokio => {
                let $env = LinkEnv::<OnTokio<_>>::$make($link);
                $then
            }
        }
    };
}

/// Runs a scenario. Returns the observed lines.
fn scenario(name: &str, driver: DriverName, link: Link, environment: &str) -> Check<Vec<String>> {
    let unknown = || Failure(format!("no scenario is called {name}"));
    with_env!(driver, env = new(link) => {
        let scenario = scenarios().into_iter().find(|scenario| scenario.entry.name == name).ok_or_else(unknown)?;
        scenario.run(&env, &link, environment)
    })
}

/// Runs the scenarios named on standard input, one after the other, on an existing link. Stops at the first failure.
///
/// # Errors
/// Standard input or output fails, or a line of the input is malformed.
pub fn lane(link: Link, environment: &str) -> Check {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (driver, name) = line.split_once(' ').ok_or_else(|| Failure(format!("not understood: {line}")))?;
        let driver = DriverName::ALL.into_iter().find(|known| known.name() == driver);
        let driver = driver.ok_or_else(|| Failure(format!("there is no such driver: {line}")))?;
        match scenario(name, driver, link, environment) {
            Ok(observed) => {
                for line in observed {
                    writeln!(output, "{line}")?;
                }
                writeln!(output, "{PASSED}")?;
            }
            Err(failure) => {
                writeln!(output, "{FAILED}{}", failure.0.replace('\n', "\\n"))?;
                return Ok(output.flush()?);
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// Runs a peer until it is killed.
///
/// # Errors
/// A step fails before the phase in which the peer is to be killed.
pub fn peer(link: Link, port: u16, killed: Killed) -> Check {
    play(&LinkEnv::<OnEpoll<_>>::of_the_peer(link), link, port, killed)
}
