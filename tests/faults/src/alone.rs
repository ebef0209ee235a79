//! The process of a lane, and that of a peer.

use std::io::{BufRead as _, Write as _};

use cmid_harness::{Check, DriverName, Failure, OnBlocking, OnEpoll, OnMio};

use crate::lanes::{FAILED, PASSED};
use crate::{Killed, Wire, WireLab, play, scenarios};

macro_rules! with_lab {
    ($driver:expr, $lab:ident = $make:ident($wire:expr) => $then:expr) => {
        match $driver {
            DriverName::Mio => {
                let $lab = WireLab::<OnMio<_>>::$make($wire);
                $then
            }
            DriverName::Epoll => {
                let $lab = WireLab::<OnEpoll<_>>::$make($wire);
                $then
            }
            DriverName::Blocking => {
                let $lab = WireLab::<OnBlocking<_>>::$make($wire);
                $then
            }
        }
    };
}

/// Runs a scenario. What was told.
fn scenario(name: &str, driver: DriverName, wire: Wire, kernel: &str) -> Check<Vec<String>> {
    let unknown = || Failure(format!("no scenario is called {name}"));
    with_lab!(driver, lab = new(wire) => {
        let scenario = scenarios().into_iter().find(|scenario| scenario.entry.name == name).ok_or_else(unknown)?;
        scenario.run(&lab, &wire, kernel)
    })
}

/// Runs the scenarios that it is told to, one after the other, on a wire that has been laid; to the first that fails.
///
/// # Errors
/// It cannot hear or speak, or does not understand.
pub fn lane(wire: Wire, kernel: &str) -> Check {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (driver, name) = line.split_once(' ').ok_or_else(|| Failure(format!("not understood: {line}")))?;
        let driver = DriverName::ALL.into_iter().find(|known| known.name() == driver);
        let driver = driver.ok_or_else(|| Failure(format!("there is no such driver: {line}")))?;
        match scenario(name, driver, wire, kernel) {
            Ok(told) => {
                for line in told {
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
pub fn peer(wire: Wire, port: u16, killed: Killed) -> Check {
    play(&WireLab::<OnEpoll<_>>::of_the_peer(wire), wire, port, killed)
}
