//! A loop of the program: one poll, one initiator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cmid_mio::verbs::Verbs;
use cmid_nvme::initiator::{BufferOf, Ended, Happened, Initiator, On, Options};
use cmid_nvme::wire::{self, IdNamespace};
use mio::{Events, Poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::Namespace;
use crate::note;

/// How long a poll waits at most.
const POLL: Duration = Duration::from_millis(500);

/// How long the end of a controller may take.
const SHUTDOWN: Duration = Duration::from_secs(5);

pub(crate) struct Session {
    poll: Poll,
    events: Events,
    pub(crate) initiator: Initiator<Verbs>,
    /// Whether a signal is to end the program: with its connections, because the kernel ends those of a program that was killed in
    /// another order. Soft-RoCE then waits for 50 s for the windows of each QP.
    interrupted: Arc<AtomicBool>,
    /// Whether a signal is to reset the controller.
    resets: Arc<AtomicBool>,
}

impl Session {
    /// Connects, and waits until the controller is live.
    pub(crate) fn connect(options: Options) -> Result<Self> {
        let addr = options.addr;
        let poll = Poll::new()?;
        let device = Verbs::open().context("no RDMA device: load rdma_ucm and the driver of a device")?;
        let initiator = Initiator::new(device, poll.registry(), 0, options)
            .context("no RDMA device: load rdma_ucm and the driver of a device, and see `rdma link`")?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second signal ends the program at once.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))?;
            flag::register(signal, Arc::clone(&interrupted))?;
        }
        let resets = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&resets))?;
        let mut session = Session { poll, events: Events::with_capacity(256), initiator, interrupted, resets };
        while session.initiator.controller().is_none() {
            session.turn(POLL).with_context(|| format!("{addr}"))?;
        }
        Ok(session)
    }

    /// The same for a namespace, with so many registered buffers.
    pub(crate) fn with_buffers(of: &Namespace, buffers: usize) -> Result<Self> {
        Session::connect(Options { buffers, ..of.of.options() })
    }

    /// Makes a turn, and tells what has happened to the controller.
    pub(crate) fn turn(&mut self, at_most: Duration) -> Result<()> {
        let timeout = self.initiator.before_poll(at_most);
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            polled => polled?,
        }
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        if self.resets.swap(false, Ordering::Relaxed) {
            self.initiator.reset();
        }
        for event in &self.events {
            // There are no other sources.
            self.initiator.handle(event);
        }
        self.initiator.turn();
        while let Some(happened) = self.initiator.next_happened() {
            match happened {
                Happened::Live => {
                    let queues = self.initiator.controller().map_or(0, |controller| controller.queues());
                    let away = self.initiator.queues_on_reactors();
                    let of_them = if away > 0 { format!(", {away} of them on other reactors") } else { String::new() };
                    let lends = if self.initiator.lends() { "; memory is lent" } else { "" };
                    note(format_args!("connected: {queues} I/O queues{of_them}{lends}"));
                }
                Happened::Lost(loss) => note(format_args!("lost: {loss}; connects again")),
                Happened::Event(event) => note(format_args!("event: {event}")),
                Happened::NoBlocks(error) => note(format_args!("data is copied: {error}")),
                Happened::GivenUp { loss, rule: Some(rule) } => bail!("{loss}; {rule}"),
                Happened::GivenUp { loss, rule: None } => bail!("{loss}"),
            }
        }
        Ok(())
    }

    /// Makes turns until a request has ended.
    pub(crate) fn wait(&mut self) -> Result<Ended<BufferOf<Verbs>>> {
        loop {
            if let Some(ended) = self.initiator.next_ended() {
                return Ok(ended);
            }
            self.turn(POLL)?;
        }
    }

    /// Runs one command, while there is no other one. Returns its data.
    pub(crate) fn run(&mut self, what: &str, on: On, command: wire::Command) -> Result<BufferOf<Verbs>> {
        if self.initiator.submit(on, command).is_err() {
            bail!("{what}: too many commands wait");
        }
        let data = self.wait()?.into_data().with_context(|| what.to_owned())?;
        Ok(data.unwrap_or_else(|| Vec::new().into()))
    }

    /// Identifies a namespace whose blocks can be read and written.
    pub(crate) fn namespace(&mut self, nsid: u32) -> Result<IdNamespace> {
        let id = self.run("Identify Namespace", On::Admin, wire::identify_namespace(nsid))?;
        let id = IdNamespace::decode(&id)?;
        if id.size == 0 {
            let list = self.run("the list of namespaces", On::Admin, wire::identify_namespaces(0))?;
            bail!("there is no namespace {nsid}; there are {:?}", wire::namespace_list(&list)?);
        }
        if id.metadata != 0 {
            bail!("namespace {nsid} has metadata, which this program does not support");
        }
        Ok(id)
    }

    /// Shuts the controller down, and ends the connections.
    pub(crate) fn close(mut self) {
        let until = Instant::now() + SHUTDOWN;
        let shutdown = self.initiator.controller().map(|controller| controller.shutdown());
        let ticket = shutdown.and_then(|command| self.initiator.submit(On::Admin, command).ok());
        while ticket.is_some() && Instant::now() < until {
            if self.initiator.next_ended().is_some_and(|ended| Some(ended.ticket) == ticket) || self.turn(POLL).is_err()
            {
                break;
            }
        }
        self.initiator.close();
    }
}
