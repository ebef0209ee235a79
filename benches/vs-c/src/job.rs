//! The jobs by name, with the names of the C program.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use cmid_harness::{OnEpoll, OnMio};
use cmid_verbs::{Backend, Verbs};

use crate::wire::Wants;
use crate::work::Work;
use crate::{connections, messages, serve, work};

/// A counted job, with its number of repetitions in each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Accepts connections: `serve:COUNT`.
    Serve { count: u32 },
    /// Makes connections: `qp-AT-ONCE:COUNT` or `bare-AT-ONCE:COUNT`.
    Connections { wants: Wants, at_once: u32, count: u32 },
    /// RDMA writes, or sends and receives, 32 at a time: `write:ROUNDS`, `send:ROUNDS`; in one call:
    /// `write-batch:ROUNDS`; with receives of an SRQ: `send-srq:ROUNDS`; with blocks:
    /// `write-block:ROUNDS`, `send-block:ROUNDS`, `write-block-batch:ROUNDS`.
    Work { work: Work, rounds: u32 },
    /// Ping-pong messages: `messages:COUNT`.
    Messages { count: u32 },
}

/// One of the two drivers for event loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoopName {
    Epoll,
    Mio,
}

impl FromStr for Job {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, count) = text.split_once(':').context("a job is NAME:COUNT")?;
        let count: u32 = count.parse()?;
        if let Some(work) = Work::named(name) {
            return Ok(Job::Work { work, rounds: count });
        }
        let (kind, at_once) = name.split_once('-').map_or((name, None), |(kind, rest)| (kind, Some(rest)));
        let at_once = at_once.map(str::parse).transpose()?;
        Ok(match (kind, at_once) {
            ("serve", None) => Job::Serve { count },
            ("qp", Some(at_once)) => Job::Connections { wants: Wants::Qp, at_once, count },
            ("bare", Some(at_once)) => Job::Connections { wants: Wants::Bare, at_once, count },
            ("messages", None) => Job::Messages { count },
            _ => bail!("no job is called \"{name}\""),
        })
    }
}

impl Job {
    pub(crate) fn run(self, address: SocketAddr, driver: LoopName, on: Backend) -> Result<()> {
        match (self, driver) {
            (Job::Serve { count }, LoopName::Epoll) => serve::run::<OnEpoll<Verbs>>(address, count, on),
            (Job::Serve { count }, LoopName::Mio) => serve::run::<OnMio<Verbs>>(address, count, on),
            (Job::Connections { wants, at_once, count }, LoopName::Epoll) => {
                connections::run::<OnEpoll<Verbs>>(address, wants, at_once, count, on)
            }
            (Job::Connections { wants, at_once, count }, LoopName::Mio) => {
                connections::run::<OnMio<Verbs>>(address, wants, at_once, count, on)
            }
            (Job::Work { work, rounds }, _) => work::run(address, work, rounds),
            (Job::Messages { count }, _) => messages::run(address, count),
        }
    }
}
