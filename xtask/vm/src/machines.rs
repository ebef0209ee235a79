//! Machines that are switched off and on.

use crate::error::{Error, WithPath};
use crate::segment::Segment;
use crate::session::{self, Session};
use crate::tool::{self, SHORT};
use crate::wire::{Numbered, free_port};
use crate::{Options, interrupt, packages};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The bytes of a disk.
const DISK: u64 = 64 << 20;

/// Machines on one wire that run a command, each with a disk at `/disk`. Their power and their links can be cut.
///
/// A machine has what [`crate::run`] describes. A power cut ends QEMU: what the guest has not written to its
/// disk is lost. The disks are removed when this is dropped.
pub struct Machines {
    options: Options,
    command: Vec<OsString>,
    segments: Vec<Segment>,
    running: Vec<Option<Session>>,
    _disks: tempfile::TempDir,
    _signals: interrupt::Watch,
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machines").field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl Machines {
    /// Boots `count` machines, one after the other, that run the command in all of them. A port of the host leads to
    /// the TCP port `served` of each: see [`Machines::addrs`].
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn start(options: &Options, count: u8, served: u16, command: &[OsString]) -> Result<Self, Error> {
        let signals = interrupt::Watch::begin()?;
        if count > Segment::MOST {
            return Err(Error::Usage(format!("more than {} machines", Segment::MOST)));
        }
        packages::ensure(&["e2fsprogs"])?;
        let disks = tempfile::tempdir().about("a folder for disks")?;
        let port = free_port().about("a port for the wire")?;
        let mut segments = Vec::new();
        // The ports are different because all listeners exist at the same time.
        let mut listeners = Vec::new();
        for machine in 1..=count {
            let disk = disks.path().join(format!("disk{machine}"));
            let file = File::create(&disk).about_file(&disk)?;
            file.set_len(DISK).about_file(&disk)?;
            tool::succeed(tool::command("mkfs.ext4").arg("-q").arg(&disk), SHORT)?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).about("a port of the host")?;
            let host = listener.local_addr().about("a port of the host")?.port();
            listeners.push(listener);
            segments.push(Segment { disk: Some(disk), forwarded: Some((host, served)), ..Segment::new(machine, port) });
        }
        drop(listeners);
        let running = segments.iter().map(|_| None).collect();
        let (options, command) = (options.clone(), command.to_vec());
        let mut machines = Machines { options, command, segments, running, _disks: disks, _signals: signals };
        (1..=count).try_for_each(|machine| machines.restore_power(machine))?;
        Ok(machines)
    }

    /// Returns the addresses of this host that lead to the machines, in their order.
    #[must_use]
    pub fn addrs(&self) -> Vec<SocketAddr> {
        let port = |segment: &Segment| segment.forwarded.map_or(0, |(host, _)| host);
        self.segments.iter().map(|segment| (Ipv4Addr::LOCALHOST, port(segment)).into()).collect()
    }

    /// Cuts the power of a machine. The first machine is number 1.
    ///
    /// # Errors
    ///
    /// The number is wrong, or the machine had failed before.
    pub fn cut_power(&mut self, machine: u8) -> Result<(), Error> {
        self.check()?;
        let index = self.index(machine)?;
        let session = self.running.get_mut(index).and_then(Option::take);
        session.map_or(Ok(()), Session::cut_power)
    }

    /// Boots a machine from its disk. It begins with its link on.
    ///
    /// # Errors
    ///
    /// See [`Error`]: among others, another machine has failed.
    pub fn restore_power(&mut self, machine: u8) -> Result<(), Error> {
        self.check()?;
        let index = self.index(machine)?;
        let mut options = self.options.clone();
        options.environment.push(("CMID_MACHINE".into(), machine.to_string().into()));
        let stdout = Box::new(Numbered::new(machine, io::stdout()));
        let stderr = Box::new(Numbered::new(machine, io::stderr()));
        let session = session::start(&options, self.segments.get(index), &self.command, stdout, stderr)?;
        if let Some(place) = self.running.get_mut(index) {
            *place = Some(session);
        }
        Ok(())
    }

    /// Switches the link of a machine to the wire off or on. The port of the host leads to it all the same.
    ///
    /// # Errors
    ///
    /// The number is wrong, a machine has failed, or QEMU does not answer.
    pub fn set_link(&mut self, machine: u8, up: bool) -> Result<(), Error> {
        self.check()?;
        let index = self.index(machine)?;
        let session = self.running.get(index).and_then(Option::as_ref);
        session.map_or(Ok(()), |session| session.set_link(up))
    }

    /// Fails if a machine has failed, or its command has ended.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn check(&mut self) -> Result<(), Error> {
        self.running.iter_mut().flatten().try_for_each(Session::check)
    }

    fn index(&self, machine: u8) -> Result<usize, Error> {
        let index = usize::from(machine).checked_sub(1).filter(|index| *index < self.segments.len());
        index.ok_or_else(|| Error::Usage(format!("there is no machine {machine}")))
    }
}
