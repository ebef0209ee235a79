//! Either side, for loops that handle both alike.

use std::time::{Duration, Instant};

use anyhow::Result;
use cmid_proto::datapath::DataPath;
use cmid_proto::{Drive, Poller};

use crate::args::{Plan, Role};
use crate::client::Client;
use crate::point::Point;
use crate::server::{Served, Server};
use crate::tally::Tally;

/// How long a driver sleeps between two checks of the deadline.
pub(crate) const SLICE: Duration = Duration::from_millis(500);

pub(crate) enum Side<D: DataPath> {
    Client(Box<Client<D>>),
    Server(Box<Server<D>>),
}

/// The results of a side.
#[derive(Debug)]
pub(crate) enum Outcome {
    Client(Box<Tally>),
    Server(Served),
}

impl<D: DataPath> Side<D> {
    pub(crate) fn begin<P: Poller<D>>(drive: &mut Drive<D, P>, role: Role, plan: Plan) -> Result<Self> {
        Ok(match role {
            Role::Client(server) => Side::Client(Box::new(Client::begin(drive, server, plan)?)),
            Role::Server(address) => Side::Server(Box::new(Server::begin(drive, address, plan)?)),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Side::Client(client) => client.is_over(),
            Side::Server(server) => server.is_over(),
        }
    }

    /// Handles all available events.
    pub(crate) fn advance<P: Poller<D>>(&mut self, drive: &mut Drive<D, P>) {
        match self {
            Side::Client(client) => client.advance(drive),
            Side::Server(server) => server.advance(drive),
        }
    }

    /// If this side waits at a point, synchronizes with the other side there, and continues.
    pub(crate) fn keep_in_step<P: Poller<D>>(
        &mut self,
        drive: &mut Drive<D, P>,
        meet: &mut dyn FnMut(Point) -> Result<()>,
    ) -> Result<()> {
        let reached = match self {
            Side::Client(client) => client.reached(),
            Side::Server(server) => server.reached(),
        };
        let Some(point) = reached else { return Ok(()) };
        meet(point)?;
        match self {
            Side::Client(client) => client.go_on(drive),
            Side::Server(server) => server.go_on(),
        }
        Ok(())
    }

    pub(crate) fn conclude<P: Poller<D>>(self, drive: &mut Drive<D, P>) -> Outcome {
        match self {
            Side::Client(client) => Outcome::Client(Box::new(client.conclude())),
            Side::Server(server) => Outcome::Server(server.conclude(drive)),
        }
    }
}

/// The time at which an unfinished side stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn of(plan: &Plan) -> Self {
        Deadline(Instant::now().checked_add(plan.deadline))
    }

    pub(crate) fn is_past(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}
