//! A model of the kernel as a core sees it: ids, channels and connections of two hosts on one network.
//!
//! Each id's events come in an order that is possible for a real connection, a channel is a queue, and
//! `rdma_migrate_id` moves unread events. The next step is chosen at random.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cmid_proto::{Call, ChannelKey, CmEvent, Errno, GroupKey, IdKey, Outcome, PortSpace, Service};

/// An id of one of the two hosts.
pub(crate) type Name = (usize, IdKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Resolving,
    Resolved,
    Routing,
    Routed,
    /// The request is sent, or the answer has arrived and `rdma_establish` is due.
    Connecting,
    Responded,
    /// The id of a request that was read.
    Requested,
    Accepted,
    Connected,
    /// `rdma_disconnect` was called; the peer has not answered.
    Leaving,
    /// The peer has disconnected.
    Left,
    TimeWait,
    Over,
    Listening,
}

/// An unread event of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    /// The id of the event; for a request, the listener.
    pub(crate) id: IdKey,
    pub(crate) kind: CmEvent,
    pub(crate) status: i32,
    pub(crate) group: Option<GroupKey>,
    /// For a request, the connecting id.
    pub(crate) from: Option<Name>,
    pub(crate) serial: u64,
}

#[derive(Debug)]
struct Id {
    channel: ChannelKey,
    service: Service,
    phase: Phase,
    peer: Option<Name>,
    has_qp: bool,
    has_device: bool,
    removed: bool,
    /// Memberships; true once joined.
    groups: Vec<(GroupKey, bool)>,
}

impl Id {
    fn new(channel: ChannelKey, service: Service, phase: Phase) -> Self {
        let (has_qp, has_device, removed) = (false, false, false);
        Id { channel, service, phase, peer: None, has_qp, has_device, removed, groups: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Host {
    channels: BTreeMap<ChannelKey, VecDeque<Unread>>,
    ids: BTreeMap<IdKey, Id>,
}

/// Both hosts.
#[derive(Debug, Default)]
pub(crate) struct Network {
    hosts: [Host; 2],
    serial: u64,
    /// One call in this many fails; 0 disables failures.
    pub(crate) failing: u32,
    /// Ids with one failed destruction. The application may have no key to destroy them again.
    kept: BTreeSet<Name>,
    /// The calls made, for the ledger.
    pub(crate) log: Vec<(usize, Call, Outcome)>,
    /// For each host, the numbers of the events that were read, with their ids. Events of groups are left out,
    /// because a leave discards them.
    pub(crate) read: [BTreeMap<u64, IdKey>; 2],
}

impl Network {
    fn post(&mut self, (host, id): Name, kind: CmEvent, status: i32) {
        self.post_about((host, id), kind, status, None, None);
    }

    fn post_about(&mut self, to: Name, kind: CmEvent, status: i32, group: Option<GroupKey>, from: Option<Name>) {
        let (host, id) = to;
        self.serial += 1;
        let serial = self.serial;
        let host = &mut self.hosts[host];
        let Some(channel) = host.ids.get(&id).map(|id| id.channel) else { return };
        let queue = host.channels.get_mut(&channel).expect("an id is on a channel that is there");
        queue.push_back(Unread { id, kind, status, group, from, serial });
    }

    fn id(&mut self, (host, id): Name) -> Option<&mut Id> {
        self.hosts[host].ids.get_mut(&id)
    }

    pub(crate) fn attach_qp(&mut self, name: Name, has_qp: bool) {
        if let Some(id) = self.id(name) {
            id.has_qp = has_qp;
        }
    }

    /// Channels of a host with unread events.
    pub(crate) fn readable(&self, host: usize) -> Vec<ChannelKey> {
        let unread = self.hosts[host].channels.iter().filter(|(_, queue)| !queue.is_empty());
        unread.map(|(&channel, _)| channel).collect()
    }

    pub(crate) fn is_empty(&self, host: usize) -> bool {
        self.hosts[host].ids.is_empty() && self.hosts[host].channels.is_empty()
    }

    /// Makes a random step of an id of either host, if one is possible.
    pub(crate) fn happen(&mut self, rng: &mut fastrand::Rng) {
        let names = self.hosts.iter().enumerate().flat_map(|(at, host)| host.ids.keys().map(move |&id| (at, id)));
        let names: Vec<Name> = names.collect();
        let Some(&name) = rng.choice(&names) else { return };
        self.happen_to(name, rng);
    }

    fn happen_to(&mut self, name: Name, rng: &mut fastrand::Rng) {
        let Some(id) = self.id(name) else { return };
        if id.removed {
            return;
        }
        if id.has_device && rng.u8(..) < 3 {
            id.removed = true;
            return self.post(name, CmEvent::DeviceRemoval, 0);
        }
        if id.has_device && id.phase != Phase::Requested && rng.u8(..) < 4 {
            return self.post(name, CmEvent::AddrChange, 0);
        }
        if let Some(group) = id.groups.iter_mut().find(|(_, joined)| !joined) {
            group.1 = true;
            let (group, fails) = (group.0, rng.u8(..8) == 0);
            let (kind, status) = if fails { (CmEvent::MulticastError, -110) } else { (CmEvent::MulticastJoin, 0) };
            return self.post_about(name, kind, status, Some(group), None);
        }
        let well = rng.u8(..8) != 0;
        match (id.phase, well) {
            (Phase::Resolving, true) => {
                id.has_device = true;
                self.go(name, Phase::Resolved, CmEvent::AddrResolved, 0);
            }
            (Phase::Resolving, false) => self.go(name, Phase::Idle, CmEvent::AddrError, -110),
            (Phase::Routing, true) => self.go(name, Phase::Routed, CmEvent::RouteResolved, 0),
            (Phase::Routing, false) => self.go(name, Phase::Resolved, CmEvent::RouteError, -110),
            (Phase::Connecting, _) if id.peer.is_none() => self.send_request(name, rng),
            (Phase::Connecting, false) => self.go(name, Phase::Over, CmEvent::Unreachable, -110),
            (Phase::Accepted, false) => self.go(name, Phase::Over, CmEvent::Unreachable, -110),
            (Phase::Left | Phase::TimeWait, true) => self.go(name, Phase::Over, CmEvent::TimewaitExit, 0),
            (Phase::Leaving, false) => self.go(name, Phase::TimeWait, CmEvent::Disconnected, -110),
            _ => {}
        }
    }

    fn go(&mut self, name: Name, phase: Phase, kind: CmEvent, status: i32) {
        if let Some(id) = self.id(name) {
            id.phase = phase;
        }
        self.post(name, kind, status);
    }

    /// The request reaches a listener of the other host, or fails without one.
    fn send_request(&mut self, name: Name, rng: &mut fastrand::Rng) {
        let other = 1 - name.0;
        let Some(service) = self.id(name).map(|id| id.service) else { return };
        let listens = |id: &Id| id.phase == Phase::Listening && !id.removed && id.service == service;
        let listeners: Vec<_> =
            self.hosts[other].ids.iter().filter(|(_, id)| listens(id)).map(|(&key, _)| key).collect();
        let nobody = if service == Service::Datagram { CmEvent::Unreachable } else { CmEvent::Rejected };
        match rng.choice(&listeners) {
            None => self.go(name, Phase::Over, nobody, 8),
            Some(&listener) => {
                // Until the request is read, the listener is the peer of the connecting id.
                if let Some(id) = self.id(name) {
                    id.peer = Some((other, listener));
                }
                self.post_about((other, listener), CmEvent::ConnectRequest, 0, None, Some(name));
            }
        }
    }

    /// Reports the end of an id to its peer.
    fn abandon(&mut self, name: Name) {
        let Some(id) = self.id(name) else { return };
        let (phase, peer) = (id.phase, id.peer.take());
        let Some(peer) = peer else { return };
        let Some(theirs) = self.id(peer).filter(|theirs| theirs.peer == Some(name) && !theirs.removed) else { return };
        let refusal = if theirs.service == Service::Datagram { CmEvent::Unreachable } else { CmEvent::Rejected };
        let connected = matches!(theirs.phase, Phase::Connected | Phase::Leaving);
        match (phase, theirs.phase) {
            (Phase::Requested | Phase::Accepted, Phase::Connecting) => self.go(peer, Phase::Over, refusal, 28),
            (Phase::Connected | Phase::Accepted | Phase::Over | Phase::Responded, _) if connected => {
                self.go(peer, Phase::Left, CmEvent::Disconnected, 0);
            }
            (_, Phase::Responded) => self.go(peer, Phase::Left, CmEvent::Disconnected, 0),
            (_, Phase::Accepted) => self.go(peer, Phase::Over, CmEvent::Rejected, 28),
            _ => {}
        }
    }

    pub(crate) fn fetch(
        &mut self,
        host: usize,
        on: ChannelKey,
        child: IdKey,
    ) -> Result<Option<(Unread, IdKey)>, Errno> {
        let queue = self.hosts[host].channels.get_mut(&on).ok_or(Errno::EBADF)?;
        let Some(unread) = queue.pop_front() else { return Ok(None) };
        if unread.group.is_none() {
            self.read[host].insert(unread.serial, unread.id);
        }
        let Some(from) = unread.from else {
            let id = unread.id;
            return Ok(Some((unread, id)));
        };
        let service = self.hosts[host].ids[&unread.id].service;
        let alive = self.id(from).is_some_and(|id| id.phase == Phase::Connecting && id.peer == Some((host, unread.id)));
        if let Some(id) = self.id(from).filter(|_| alive) {
            id.peer = Some((host, child));
        }
        let peer = alive.then_some(from);
        let new = Id { peer, has_device: true, ..Id::new(on, service, Phase::Requested) };
        assert!(self.hosts[host].ids.insert(child, new).is_none(), "the key of a child names an id already");
        Ok(Some((unread, child)))
    }

    pub(crate) fn call(&mut self, host: usize, call: &Call, rng: &mut fastrand::Rng) -> Outcome {
        let may_fail = !matches!(call, Call::CloseChannel { .. });
        if may_fail && self.failing > 0 && rng.u32(..self.failing) == 0 {
            if let Call::Destroy { id } = *call {
                self.kept.insert((host, id));
            }
            return Err(*rng.choice(&[Errno::EINVAL, Errno::ENOMEM, Errno::EBUSY]).expect("three"));
        }
        match *call {
            Call::OpenChannel { channel } => {
                assert!(self.hosts[host].channels.insert(channel, VecDeque::new()).is_none(), "{channel} is there");
                Ok(())
            }
            Call::CloseChannel { channel } => self.close(host, channel),
            Call::CreateId { id, channel, port_space } => self.create(host, id, channel, port_space),
            Call::Migrate { id, from, to } => self.migrate(host, id, from, to),
            Call::Destroy { id } => self.destroy(host, id),
            _ => self.call_on_id((host, call.id().ok_or(Errno::EINVAL)?), call),
        }
    }

    /// Closes a channel. Its ids end with it, as with a descriptor in the kernel; only ids that could not be destroyed
    /// may be left.
    fn close(&mut self, host: usize, channel: ChannelKey) -> Outcome {
        let ids = self.hosts[host].ids.iter();
        let left: Vec<IdKey> = ids.filter(|(_, id)| id.channel == channel).map(|(&key, _)| key).collect();
        for key in left {
            assert!(self.kept.contains(&(host, key)), "{channel} is closed with {key} on it");
            self.destroy(host, key)?;
        }
        self.hosts[host].channels.remove(&channel).map(drop).ok_or(Errno::EBADF)
    }

    fn create(&mut self, host: usize, id: IdKey, channel: ChannelKey, port_space: PortSpace) -> Outcome {
        let new = Id::new(channel, port_space.service(), Phase::Idle);
        assert!(self.hosts[host].channels.contains_key(&channel), "{id} is created on a channel that is not there");
        assert!(self.hosts[host].ids.insert(id, new).is_none(), "{id} is there");
        Ok(())
    }

    fn migrate(&mut self, host: usize, key: IdKey, from: ChannelKey, to: ChannelKey) -> Outcome {
        let host = &mut self.hosts[host];
        let id = host.ids.get_mut(&key).ok_or(Errno::ENOENT)?;
        assert_eq!(id.channel, from, "the core has lost track of {key}");
        assert!(id.phase != Phase::Listening || id.removed, "{key} is a listener: a migration loses requests");
        id.channel = to;
        let old = host.channels.get_mut(&from).expect("an id is on a channel that is there");
        let (moved, stay): (Vec<_>, Vec<_>) = old.drain(..).partition(|unread| unread.id == key);
        old.extend(stay);
        host.channels.get_mut(&to).ok_or(Errno::EBADF)?.extend(moved);
        Ok(())
    }

    fn destroy(&mut self, host: usize, key: IdKey) -> Outcome {
        let channel = self.hosts[host].ids.get(&key).ok_or(Errno::ENOENT)?.channel;
        self.abandon((host, key));
        self.hosts[host].ids.remove(&key);
        let queue = self.hosts[host].channels.get_mut(&channel).expect("an id is on a channel that is there");
        let (gone, stay): (Vec<_>, Vec<_>) = queue.drain(..).partition(|unread| unread.id == key);
        queue.extend(stay);
        for from in gone.into_iter().filter_map(|unread| unread.from) {
            if let Some(id) = self.id(from).filter(|id| id.peer == Some((host, key)) && !id.removed) {
                id.peer = None;
                let refusal = if id.service == Service::Datagram { CmEvent::Unreachable } else { CmEvent::Rejected };
                self.go(from, Phase::Over, refusal, 8);
            }
        }
        Ok(())
    }

    /// Makes a call on an id; `EINVAL` in the wrong phase, as in the kernel.
    fn call_on_id(&mut self, name: Name, call: &Call) -> Outcome {
        let id = self.id(name).ok_or(Errno::ENOENT)?;
        let (phase, is_datagram) = (id.phase, id.service == Service::Datagram);
        match (call, phase) {
            (Call::Bind { addr, .. }, Phase::Idle) => {
                id.has_device |= !addr.ip().is_unspecified();
                Ok(())
            }
            (Call::ResolveAddr { .. }, Phase::Idle) => self.enter(name, Phase::Resolving),
            (Call::ResolveRoute { .. }, Phase::Resolved) => self.enter(name, Phase::Routing),
            (Call::Listen { .. }, Phase::Idle) => self.enter(name, Phase::Listening),
            (Call::Connect { .. }, Phase::Routed) => self.enter(name, Phase::Connecting),
            (Call::Accept { .. }, Phase::Requested) => self.accept(name, is_datagram),
            (Call::Reject { .. }, Phase::Requested | Phase::Responded) => {
                let peer = id.peer;
                id.phase = Phase::Over;
                if let Some(peer) = peer {
                    if let Some(theirs) = self.id(peer).filter(|theirs| theirs.peer == Some(name) && !theirs.removed) {
                        if matches!(theirs.phase, Phase::Connecting | Phase::Accepted) {
                            let kind = if is_datagram { CmEvent::Unreachable } else { CmEvent::Rejected };
                            self.go(peer, Phase::Over, kind, 28);
                        }
                    }
                }
                Ok(())
            }
            (Call::Establish { .. }, Phase::Responded) => {
                id.phase = Phase::Connected;
                self.confirm(name);
                Ok(())
            }
            (Call::Disconnect { .. }, _) => {
                self.disconnect(name);
                Ok(())
            }
            (Call::Notify { .. }, Phase::Accepted) => self.enter_with(name, Phase::Connected, CmEvent::Established),
            (Call::Join { group, .. }, _) => {
                id.groups.push((*group, false));
                Ok(())
            }
            (Call::Leave { group, .. }, _) => {
                let channel = id.channel;
                id.groups.retain(|(other, _)| other != group);
                let queue = self.hosts[name.0].channels.get_mut(&channel).ok_or(Errno::EBADF)?;
                queue.retain(|unread| unread.group != Some(*group));
                Ok(())
            }
            (Call::SetOption { .. } | Call::SetEce { .. }, _) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn enter(&mut self, name: Name, phase: Phase) -> Outcome {
        self.id(name).ok_or(Errno::ENOENT)?.phase = phase;
        Ok(())
    }

    fn enter_with(&mut self, name: Name, phase: Phase, kind: CmEvent) -> Outcome {
        self.go(name, phase, kind, 0);
        Ok(())
    }

    fn accept(&mut self, name: Name, is_datagram: bool) -> Outcome {
        let peer = self.id(name).and_then(|id| id.peer).ok_or(Errno::EINVAL)?;
        let theirs = self.id(peer).filter(|theirs| theirs.peer == Some(name) && theirs.phase == Phase::Connecting);
        let (has_qp, removed) = theirs.map(|theirs| (theirs.has_qp, theirs.removed)).ok_or(Errno::EINVAL)?;
        self.enter(name, if is_datagram { Phase::Over } else { Phase::Accepted })?;
        match (removed, is_datagram, has_qp) {
            (true, ..) => {}
            (false, true, _) => self.go(peer, Phase::Over, CmEvent::Established, 0),
            (false, false, true) => {
                self.go(peer, Phase::Connected, CmEvent::Established, 0);
                self.confirm(peer);
            }
            (false, false, false) => self.go(peer, Phase::Responded, CmEvent::ConnectResponse, 0),
        }
        Ok(())
    }

    /// The confirmation of the connecting id reaches the accepting id.
    fn confirm(&mut self, name: Name) {
        let Some(peer) = self.id(name).and_then(|id| id.peer) else { return };
        if self.id(peer).is_some_and(|theirs| theirs.phase == Phase::Accepted && !theirs.removed) {
            self.go(peer, Phase::Connected, CmEvent::Established, 0);
        }
    }

    fn disconnect(&mut self, name: Name) {
        let Some(id) = self.id(name) else { return };
        let peer = id.peer;
        match id.phase {
            Phase::Connected => {
                id.phase = Phase::Leaving;
                let Some(peer) = peer else { return };
                let Some(theirs) = self.id(peer).filter(|theirs| !theirs.removed) else { return };
                match theirs.phase {
                    Phase::Connected | Phase::Accepted => self.go(peer, Phase::Left, CmEvent::Disconnected, 0),
                    Phase::Leaving => {
                        self.go(peer, Phase::TimeWait, CmEvent::Disconnected, 0);
                        self.go(name, Phase::TimeWait, CmEvent::Disconnected, 0);
                    }
                    _ => {}
                }
            }
            Phase::Left => {
                id.phase = Phase::TimeWait;
                let Some(peer) = peer else { return };
                if self.id(peer).is_some_and(|theirs| theirs.phase == Phase::Leaving && !theirs.removed) {
                    self.go(peer, Phase::TimeWait, CmEvent::Disconnected, 0);
                }
            }
            _ => {}
        }
    }

    /// Gives an id and its channel new keys, as a release and an adopt do.
    pub(crate) fn rename(&mut self, (host, old): Name, new: IdKey, channels: (ChannelKey, ChannelKey)) {
        let it = &mut self.hosts[host];
        let mut id = it.ids.remove(&old).expect("a released id is there");
        let mut queue = it.channels.remove(&channels.0).expect("a released channel is there");
        id.channel = channels.1;
        queue.iter_mut().for_each(|unread| unread.id = new);
        it.channels.insert(channels.1, queue);
        it.ids.insert(new, id);
        for id in self.hosts.iter_mut().flat_map(|host| host.ids.values_mut()) {
            if id.peer == Some((host, old)) {
                id.peer = Some((host, new));
            }
        }
    }
}
