//! The generator's prediction of the ids' states, as if every call succeeded.

use std::collections::{BTreeMap, VecDeque};

use cmid_proto::PortSpace;

use crate::address::{Endpoint, Ip};
use crate::program::{Action, CHILDREN, ChannelNo, IdCall, SideName, Slot};

/// The predicted phase of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Bound,
    Listening,
    /// Waits for an event.
    Waits,
    Resolved,
    Routed,
    Requested,
    /// Has accepted.
    Accepted,
    /// CONNECT_RESPONSE has been read.
    Answered,
    Up,
    /// A side has disconnected.
    Down,
    /// Rejected, looked up, or ended.
    Over,
}

/// The predicted state of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Believed {
    pub(crate) phase: Phase,
    pub(crate) space: PortSpace,
    pub(crate) has_qp: bool,
    pub(crate) has_listened: bool,
    /// The id has resolved an address to which no request can be sent.
    pub(crate) sought_nobody: bool,
    /// The id waits for a connection request.
    pub(crate) has_asked: bool,
    pub(crate) joined: [bool; 8],
    on: Option<ChannelNo>,
    at: Option<Endpoint>,
    peer: Option<Slot>,
}

impl Believed {
    pub(crate) fn is_synchronous(&self) -> bool {
        self.on.is_none()
    }
}

/// The predicted state of a side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) ids: BTreeMap<Slot, Believed>,
    pub(crate) channels: Vec<ChannelNo>,
    made: Slot,
    children: Slot,
    /// Pending events: the id, and the effect. A request names the client.
    unread: VecDeque<(Slot, Unread)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Now(Phase),
    Request(Slot),
}

impl Side {
    pub(crate) fn next_own(&self) -> Slot {
        self.made
    }

    pub(crate) fn last_made(&self) -> Slot {
        self.made.saturating_sub(1)
    }

    /// A channel with pending events, or `Some(None)` for an id in synchronous mode. `None` if there are no events.
    pub(crate) fn waiting(&self) -> Option<Option<ChannelNo>> {
        self.unread.iter().find_map(|(id, _)| Some(self.ids.get(id)?.on))
    }

    /// The address of a listener.
    pub(crate) fn listening(&self, space: PortSpace) -> Option<Endpoint> {
        let mut listeners = self.ids.values().filter(|id| id.phase == Phase::Listening && id.space == space);
        let Endpoint(ip, port) = listeners.next_back()?.at?;
        let own = if ip.is_ipv6() { Ip::OfB6 } else { Ip::OfB };
        Some(Endpoint(if ip == Ip::Link6 { ip } else { own }, port))
    }
}

/// The predicted state of both sides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beliefs {
    a: Side,
    b: Side,
}

impl Beliefs {
    pub(crate) fn side(&self, side: SideName) -> &Side {
        match side {
            SideName::A => &self.a,
            SideName::B => &self.b,
        }
    }

    fn side_mut(&mut self, side: SideName) -> &mut Side {
        match side {
            SideName::A => &mut self.a,
            SideName::B => &mut self.b,
        }
    }

    /// Applies a step, as if it succeeded.
    pub(crate) fn assume(&mut self, name: SideName, action: &Action) {
        match *action {
            Action::OpenChannel { channel, .. } => self.side_mut(name).channels.push(channel),
            Action::Create { id, channel, space } => {
                let new = Believed {
                    phase: Phase::Idle,
                    space,
                    has_qp: false,
                    has_listened: false,
                    sought_nobody: false,
                    has_asked: false,
                    joined: [false; 8],
                    on: channel,
                    at: None,
                    peer: None,
                };
                let side = self.side_mut(name);
                side.made = side.made.max(id + 1);
                side.ids.insert(id, new);
            }
            Action::Read { channel, most } => self.read(name, Some(channel), most.map_or(usize::MAX, usize::from)),
            // The event that an id in synchronous mode waits for.
            Action::Turn => self.read(name, None, usize::MAX),
            Action::On(id, IdCall::Destroy) => {
                let side = self.side_mut(name);
                let gone = side.ids.remove(&id);
                side.unread.retain(|(whose, _)| *whose != id);
                if let Some(peer) = gone.and_then(|gone| gone.peer) {
                    self.notify(name.other(), peer, Unread::Now(Phase::Down));
                }
            }
            Action::On(id, call) => self.on_id(name, id, call),
            Action::CloseChannel(_) | Action::Ack(_) | Action::LetTimePass => {}
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "what is not believed to change anything is the rule")]
    fn on_id(&mut self, name: SideName, id: Slot, call: IdCall) {
        let Some(&was) = self.side(name).ids.get(&id) else { return };
        let (other, udp) = (name.other(), was.space == PortSpace::Udp);
        let mut now = was;
        now.sought_nobody |= matches!(call, IdCall::ResolveAddr { dst, .. } if dst.0.is_nobody());
        match call {
            IdCall::Bind(at) if was.phase == Phase::Idle => (now.phase, now.at) = (Phase::Bound, Some(at)),
            IdCall::Listen(_) => {
                now.has_listened = true;
                if matches!(was.phase, Phase::Idle | Phase::Bound) {
                    now.phase = Phase::Listening;
                }
            }
            IdCall::ResolveAddr { dst, .. } if matches!(was.phase, Phase::Idle | Phase::Bound) => {
                (now.phase, now.at) = (Phase::Waits, Some(dst));
                self.notify(name, id, Unread::Now(Phase::Resolved));
            }
            IdCall::ResolveRoute if was.phase == Phase::Resolved => {
                now.phase = Phase::Waits;
                self.notify(name, id, Unread::Now(Phase::Routed));
            }
            IdCall::Connect(_) if was.phase == Phase::Routed => {
                now.phase = Phase::Waits;
                let port = was.at.map(|Endpoint(_, port)| port);
                let record = |one: &Believed| {
                    one.phase == Phase::Listening
                        && one.space == was.space
                        && one.at.map(|Endpoint(_, port)| port) == port
                };
                let listener = self.side(other).ids.iter().find(|(_, one)| record(one)).map(|(&slot, _)| slot);
                match listener {
                    Some(listener) => self.notify(other, listener, Unread::Request(id)),
                    None => self.notify(name, id, Unread::Now(Phase::Over)),
                }
            }
            IdCall::Accept(_) if was.phase == Phase::Requested => {
                now.phase = if udp { Phase::Over } else { Phase::Accepted };
                let client = was.peer.and_then(|peer| self.side(other).ids.get(&peer));
                let confirms = client.is_some_and(|client| client.has_qp);
                self.notify_peer(
                    other,
                    was,
                    if udp {
                        Phase::Over
                    } else if confirms {
                        Phase::Up
                    } else {
                        Phase::Answered
                    },
                );
                if confirms {
                    self.notify(name, id, Unread::Now(Phase::Up));
                }
            }
            IdCall::Reject { .. } if matches!(was.phase, Phase::Requested | Phase::Answered) => {
                now.phase = Phase::Over;
                self.notify_peer(other, was, Phase::Over);
            }
            IdCall::Establish if was.phase == Phase::Answered => {
                now.phase = Phase::Up;
                self.notify_peer(other, was, Phase::Up);
            }
            IdCall::Disconnect | IdCall::Teardown if matches!(was.phase, Phase::Up | Phase::Down) => {
                now.phase = if was.phase == Phase::Up { Phase::Waits } else { Phase::Over };
                self.notify_peer(other, was, Phase::Down);
                self.notify(name, id, Unread::Now(Phase::Over));
            }
            IdCall::GetRequest => now.has_asked = true,
            IdCall::AttachQp => now.has_qp = true,
            IdCall::DetachQp => now.has_qp = false,
            IdCall::Leave(group) => now.joined[usize::from(group)] = false,
            IdCall::Join { group, .. } => now.joined[usize::from(group)] = true,
            IdCall::Migrate(to) => now.on = to,
            _ => {}
        }
        self.side_mut(name).ids.insert(id, now);
    }

    fn notify(&mut self, side: SideName, id: Slot, activity: Unread) {
        self.side_mut(side).unread.push_back((id, activity));
    }

    fn notify_peer(&mut self, side: SideName, id: Believed, phase: Phase) {
        if let Some(peer) = id.peer {
            self.notify(side, peer, Unread::Now(phase));
        }
    }

    fn read(&mut self, name: SideName, channel: Option<ChannelNo>, most: usize) {
        let side = self.side_mut(name);
        let on = |side: &Side, id: Slot| side.ids.get(&id).map(|id| id.on) == Some(channel);
        let mut requests = Vec::new();
        for _ in 0..most {
            let Some(first) = side.unread.iter().position(|&(id, _)| on(side, id)) else { break };
            let Some((id, activity)) = side.unread.remove(first) else { break };
            match activity {
                Unread::Now(phase) => {
                    if let Some(id) = side.ids.get_mut(&id) {
                        id.phase = phase;
                    }
                }
                Unread::Request(client) => {
                    let Some(listener) = side.ids.get_mut(&id) else { continue };
                    listener.has_asked = false;
                    let listener = *listener;
                    let child = CHILDREN + side.children;
                    side.children += 1;
                    let new = Believed {
                        phase: Phase::Requested,
                        has_qp: false,
                        has_listened: false,
                        has_asked: false,
                        peer: Some(client),
                        ..listener
                    };
                    side.ids.insert(child, new);
                    requests.push((client, child));
                }
            }
        }
        for (client, child) in requests {
            if let Some(client) = self.side_mut(name.other()).ids.get_mut(&client) {
                client.peer = Some(child);
            }
        }
    }
}
