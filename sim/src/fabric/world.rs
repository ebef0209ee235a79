//! The complete state of a fabric, behind one lock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use cmid_proto::datapath::{AsyncEventKind, AsyncSource};
use cmid_proto::{Errno, PortSpace, Time};

use crate::data::async_events::AsyncReaders;
use crate::data::memory::Memory;
use crate::data::pd::Domains;
use crate::data::queues::Queues;
use crate::fabric::config::Config;
use crate::fabric::counters::Counters;
use crate::fabric::log::Log;
use crate::fabric::rng::Rng;
use crate::fabric::rules::Rules;
use crate::fabric::table::Table;
use crate::fabric::timers::{TimerKey, Timers};
use crate::index::{CommId, DeviceNo, FileNo, HostNo, IdNo};
use crate::kernel::channel::File;
use crate::kernel::due::Due;
use crate::kernel::host::HostState;
use crate::kernel::id::Id;

/// The duration of work that the kernel defers to a work queue and that needs no message.
pub(crate) const LOCAL_WORK: Duration = Duration::from_micros(1);

/// All state of a fabric. Collections are iterated in the order of their keys only, so that runs are deterministic
/// for a seed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) counters: Counters,
    pub(crate) timers: Timers<Due>,
    /// The newest timer of a connection of each length.
    pub(crate) last_of_span: BTreeMap<Duration, TimerKey>,
    pub(crate) rules: Rules,
    /// What has happened, if somebody reads it.
    pub(crate) log: Option<Log>,
    pub(crate) hosts: Vec<HostState>,
    /// The hosts whose `has_news` is set.
    news: Vec<HostNo>,
    pub(crate) files: Table<FileNo, File>,
    pub(crate) ids: Table<IdNo, Box<Id>>,
    pub(crate) comms: Table<CommId, IdNo>,
    pub(crate) memory: Memory,
    pub(crate) domains: Domains,
    /// Whether to retry parked regions.
    pub(crate) sweep: bool,
    pub(crate) queues: Queues,
    pub(crate) async_readers: AsyncReaders,
    next_file: u64,
    next_id: u64,
    last_turn: u64,
    next_comm: u32,
    /// Whether the last handle is dropped. The thread of a real clock then ends.
    pub(crate) stopped: bool,
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        let mut rules = Rules::default();
        rules.set_loss(config.loss);
        World {
            rules,
            log: None,
            now: Time::ZERO,
            rng: Rng::new(config.seed),
            memory: Memory::new(&config),
            config,
            counters: Counters::default(),
            timers: Timers::default(),
            last_of_span: BTreeMap::new(),
            hosts: Vec::new(),
            news: Vec::new(),
            files: Table::default(),
            ids: Table::default(),
            comms: Table::default(),
            domains: Domains::default(),
            sweep: false,
            queues: Queues::default(),
            async_readers: AsyncReaders::default(),
            next_file: 0,
            next_id: 0,
            last_turn: 0,
            next_comm: 0,
            stopped: false,
        }
    }

    /// Advances the time to `until` and processes due timers in order.
    pub(crate) fn advance_to(&mut self, until: Time) {
        while let Some((due, what)) = self.timers.pop(until) {
            self.now = self.now.max(due);
            match what {
                Due::Message(message) => self.deliver(*message),
                Due::Address { id, outcome } => self.address_found(id, outcome),
                Due::Route { id } => self.route_found(id),
                Due::Joined { id, group } => self.joined(id, group),
                Due::Unanswered { id } => self.unanswered(id),
                Due::Iw { from, to, message } => self.iw_receive(from, to, message),
                Due::TimeWaitOver { id } => self.time_wait_over(id),
                Due::Flap { rule } => self.flap(rule),
                Due::Data(transfer) => self.transfer(transfer),
            }
        }
        self.now = self.now.max(until);
    }

    /// Notes that something has arrived for a program of the host.
    pub(crate) fn wake(&mut self, host: HostNo) {
        if let Some(state) = self.hosts.get_mut(host.0).filter(|state| !state.has_news) {
            state.has_news = true;
            self.news.push(host);
        }
    }

    /// Takes the hosts for which something has arrived since this was last called, in order.
    pub(crate) fn take_news(&mut self, mut each: impl FnMut(HostNo)) {
        if self.news.is_empty() {
            return;
        }
        self.news.sort_unstable();
        for host in self.news.drain(..) {
            if let Some(state) = self.hosts.get_mut(host.0) {
                state.has_news = false;
            }
            each(host);
        }
    }

    /// Reports an asynchronous event of a device to its readers.
    pub(crate) fn raise_event(&mut self, device: DeviceNo, kind: AsyncEventKind, source: AsyncSource) {
        self.async_readers.raise(device, kind, source);
        self.wake(device.host);
    }

    /// Opens a channel (`ucma_open`).
    pub(crate) fn open_file(&mut self) -> Result<FileNo, Errno> {
        let file = File::open()?;
        let no = FileNo(self.next_file);
        self.next_file += 1;
        self.files.insert(no, file);
        Ok(no)
    }

    /// Returns the current device of an address of a host, or its next one.
    pub(crate) fn device_at(&self, host: HostNo, ip: Option<IpAddr>) -> DeviceNo {
        let state = self.hosts.get(host.0);
        let index = state.zip(ip).map_or(0, |(state, ip)| state.device_index(ip));
        DeviceNo { host, index, incarnation: state.map_or(0, |state| state.incarnation) }
    }

    /// Returns the current devices of a host, or its next ones.
    pub(crate) fn devices_of(&self, host: HostNo) -> Vec<DeviceNo> {
        let first = self.device_at(host, None);
        let last = self.hosts.get(host.0).map_or(0, HostState::last_device_index);
        (0..=last).map(|index| DeviceNo { index, ..first }).collect()
    }

    /// Whether a device still exists.
    pub(crate) fn lives(&self, device: DeviceNo) -> bool {
        let host = self.hosts.get(device.host.0);
        host.is_some_and(|host| host.has_device() && host.incarnation == device.incarnation)
    }

    /// `rdma_create_id`.
    pub(crate) fn create_id(&mut self, host: HostNo, file: FileNo, port_space: PortSpace) -> Result<IdNo, Errno> {
        if !self.files.contains_key(&file) {
            return Err(Errno::EBADF);
        }
        Ok(self.add_id(Id::new(host, file, port_space)))
    }

    pub(crate) fn add_id(&mut self, mut id: Id) -> IdNo {
        let no = IdNo(self.next_id);
        self.next_id += 1;
        id.turn = self.next_turn();
        if let Some(file) = self.files.get_mut(&id.file) {
            file.ids.insert(id.turn, no);
        }
        self.ids.insert(no, Box::new(id));
        no
    }

    /// A place at the end of a list of the kernel: greater than all before.
    pub(crate) fn next_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// The ids that have a turn, in the order of their turns.
    pub(crate) fn in_turn(&self, turn: impl Fn(&Id) -> Option<u64>) -> Vec<IdNo> {
        let mut listed = self.ids.keys_of(|_, id| turn(id).is_some());
        listed.sort_by_key(|no| self.ids.get(no).and_then(|id| turn(id)));
        listed
    }

    /// The id of a call. `EBADF` if it does not exist any more, because its channel was closed.
    pub(crate) fn id(&mut self, no: IdNo) -> Result<&mut Id, Errno> {
        self.ids.get_mut(&no).map(Box::as_mut).ok_or(Errno::EBADF)
    }

    /// Allocates a communication id that no current connection has.
    pub(crate) fn new_comm(&mut self) -> CommId {
        loop {
            self.next_comm = self.next_comm.wrapping_add(1);
            let comm = CommId(self.next_comm);
            if comm != CommId::NONE && !self.comms.contains_key(&comm) {
                return comm;
            }
        }
    }

    /// The index of an address in the host's GID table, where a mapped one is that of its IPv4 address. The simulated
    /// table contains only the host's addresses.
    pub(crate) fn gid_index(&self, host: HostNo, ip: IpAddr) -> u8 {
        let table = self.hosts.get(host.0).map_or(&[][..], |host| &host.rdma);
        let at = table.iter().position(|&own| own == ip.to_canonical()).unwrap_or(0);
        u8::try_from(at).unwrap_or(u8::MAX)
    }

    /// The address at an index of the GID table.
    pub(crate) fn address_at(&self, host: HostNo, sgid_index: u8) -> Option<IpAddr> {
        self.hosts.get(host.0)?.rdma.get(usize::from(sgid_index)).copied()
    }
}
