//! `cmid-nvme`: an NVMe over RDMA initiator. See README.md.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod copy;
mod session;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use args::{Arguments, Command, Target};
use clap::Parser as _;
use cmid_nvme::initiator::On;
use cmid_nvme::wire::{self, DiscoveryEntry, DiscoveryLog, IdController, LogPage};
use session::Session;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("cmid-nvme: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints lines. An output that is full or closed is an error; `println!` panics then.
fn print(text: impl Display) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("standard output")
}

/// Tells the user something. If that fails, there is nobody to tell.
fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Discover(target) => discover(&target),
        Command::Connect { to, seconds } => {
            let mut session = Session::connect(to.options())?;
            let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
            while until.is_none_or(|until| Instant::now() < until) {
                session.turn(Duration::from_millis(500))?;
            }
            session.close();
            Ok(())
        }
        Command::IdCtrl(of) => with(Session::connect(of.options())?, id_ctrl),
        Command::IdNs(of) => with(Session::connect(of.of.options())?, |session| {
            let id = session.namespace(of.namespace_id)?;
            print(format_args!("nsze {}\nncap {}\nnuse {}\nblock {}", id.size, id.capacity, id.used, id.block()))
        }),
        Command::Read { of, range, data_size } => with(Session::with_buffers(&of, copy::DEPTH)?, |session| {
            copy::read(session, of.namespace_id, &range, data_size)
        }),
        Command::Write { of, range } => {
            with(Session::with_buffers(&of, copy::DEPTH)?, |session| copy::write(session, of.namespace_id, &range))
        }
        Command::Flush(of) => with(Session::connect(of.of.options())?, |session| {
            session.run("flush", On::Io, wire::flush(of.namespace_id)).map(drop)
        }),
        Command::Bench { of, bench } => {
            let buffers = if bench.copy { 0 } else { bench.queue_depth.into() };
            with(Session::with_buffers(&of, buffers)?, |session| bench::run(session, of.namespace_id, &bench))
        }
    }
}

/// Works with a session, and closes it.
fn with(mut session: Session, work: impl FnOnce(&mut Session) -> Result<()>) -> Result<()> {
    let result = work(&mut session);
    session.close();
    result
}

fn id_ctrl(session: &mut Session) -> Result<()> {
    let id = session.run("Identify Controller", On::Admin, wire::identify_controller())?;
    let id = IdController::decode(&id)?;
    let (major, minor) = (id.version >> 16, id.version >> 8 & 0xff);
    print(format_args!(
        "sn {}\nmn {}\nfr {}\ncntlid {}\nmdts {}",
        id.serial, id.model, id.firmware, id.cntlid, id.mdts
    ))?;
    print(format_args!("ver {major}.{minor}\nnn {}\nkas {}\nmaxcmd {}", id.namespaces, id.kas, id.max_commands))?;
    print(format_args!("sgls {:#x}\nioccsz {}\nsubnqn {}", id.sgls, id.capsule / 16, id.subsystem))
}

fn discover(target: &Target) -> Result<()> {
    with(Session::connect(target.discovery())?, |session| {
        let log = read_log(session)?;
        for entry in log.entries {
            let transport = entry.transport_name();
            let DiscoveryEntry { address, service, subsystem, .. } = &entry;
            print(format_args!("{transport} {address} {service} {subsystem} ({})", entry.kind_name()))?;
        }
        Ok(())
    })
}

/// Reads the discovery log until it does not change meanwhile.
fn read_log(session: &mut Session) -> Result<DiscoveryLog> {
    let log = DiscoveryLog::read(|offset, len| {
        let command = wire::get_log_page(LogPage::DISCOVERY, offset.into(), len);
        session.run("the discovery log", On::Admin, command)
    });
    log?.context("the discovery log changes all the time")
}
