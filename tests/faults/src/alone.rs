//! The process of a lane, and that of a peer.

use std::io::{BufRead as _, Write as _};

use cmid_conformance::{Check, DriverName, Failure, OnBlocking, OnEpoll, OnMio};

use crate::lanes::{FAILED, PASSED};
use crate::{Killed, Link, WireLab, play, scenarios};

macro_rules! with_lab {
    ($driver:expr, $env:ident = $make:ident($link:expr) => $then:expr) => {
        match $driver {
            DriverName::Mio => {
                let $env = WireLab::<OnMio<_>>::$make($link);
                $then
            }
            DriverName::Epoll => {
                let $env = WireLab::<OnEpoll<_>>::$make($link);
                $then
            }
            DriverName::Blocking => {
                let $env = WireLab::<OnBlocking<_>>::$make($link);
                $then
            }
        }
    };
}

/// Runs a scenario. What was told.
fn scenario(name: &str, driver: DriverName, link: Link, kernel: &str) -> Check<Vec<String>> {
    let unknown = || Failure(format!("no scenario is called {name}"));
    with_lab!(driver, env = new(link) => {
        let scenario = scenarios().into_iter().find(|scenario| scenario.entry.name == name).ok_or_else(unknown)?;
        scenario.run(&env, &link, kernel)
    })
}

/// Runs the scenarios that it is told to, one after the other, on a wire that has been laid; to the first that fails.
///
/// # Errors
/// It cannot hear or speak, or does not understand.
pub fn lane(link: Link, kernel: &str) -> Check {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (driver, name) = line.split_once(' ').ok_or_else(|| Failure(format!("not understood: {line}")))?;
        let driver = DriverName::ALL.into_iter().find(|known| known.name() == driver);
        let driver = driver.ok_or_else(|| Failure(format!("there is no such driver: {line}")))?;
        match scenario(name, driver, link, kernel) {
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

/// Is a peer, until it is killed.
///
/// # Errors
/// What kept it from getting to where it is to be killed.
pub fn peer(link: Link, port: u16, killed: Killed) -> Check {
    play(&WireLab::<OnEpoll<_>>::of_the_peer(link), link, port, killed)
}
