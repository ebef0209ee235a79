//! What the maker of programs believes of the ids: as if every call succeeded.

use std::collections::{BTreeMap, VecDeque};

use crate::program::{Action, CHILDREN, ChannelNo, Ip, Place, SideName, Slot, Space};

/// How far an id is believed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    Bound,
    Listening,
    /// For an event.
    Waits,
    Resolved,
    Routed,
    Requested,
    /// CONNECT_RESPONSE has been read.
    Answered,
    Up,
    /// A side has disconnected.
    Down,
    /// Rejected, or looked up, or gone.
    Over,
}

/// What is believed of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Believed {
    pub(crate) stage: Stage,
    pub(crate) space: Space,
    pub(crate) has_qp: bool,
    pub(crate) has_listened: bool,
    pub(crate) joined: [bool; 8],
    on: Option<ChannelNo>,
    at: Option<Place>,
    peer: Option<Slot>,
}

/// What is believed of a side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) ids: BTreeMap<Slot, Believed>,
    pub(crate) channels: Vec<ChannelNo>,
    made: Slot,
    children: Slot,
    /// Events that wait: whose, and what it leads to. A request names the client.
    unread: VecDeque<(Slot, News)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Now(Stage),
    Request(Slot),
}

impl Side {
    pub(crate) fn next_own(&self) -> Slot {
        self.made
    }

    pub(crate) fn last_made(&self) -> Slot {
        self.made.saturating_sub(1)
    }

    /// A channel with events.
    pub(crate) fn waiting(&self) -> Option<ChannelNo> {
        self.unread.iter().find_map(|(id, _)| self.ids.get(id)?.on)
    }

    /// Where somebody listens.
    pub(crate) fn listening(&self, space: Space) -> Option<Place> {
        let mut listeners = self.ids.values().filter(|id| id.stage == Stage::Listening && id.space == space);
        let Place(_, port) = listeners.next_back()?.at?;
        Some(Place(Ip::OfB, port))
    }
}

/// What is believed of both sides.
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

    /// The step is taken, and has succeeded.
    pub(crate) fn assume(&mut self, name: SideName, action: &Action) {
        match *action {
            Action::OpenChannel { channel, .. } => self.side_mut(name).channels.push(channel),
            Action::Create { id, channel, space } => {
                let new = Believed {
                    stage: Stage::Idle,
                    space,
                    has_qp: false,
                    has_listened: false,
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
            // What an id in synchronous mode waits for.
            Action::Turn => self.read(name, None, usize::MAX),
            Action::Destroy { id } => {
                let side = self.side_mut(name);
                let gone = side.ids.remove(&id);
                side.unread.retain(|(whose, _)| *whose != id);
                if let Some(peer) = gone.and_then(|gone| gone.peer) {
                    self.tell(name.other(), peer, News::Now(Stage::Down));
                }
            }
            _ => self.on_id(name, action),
        }
    }

    fn on_id(&mut self, name: SideName, action: &Action) {
        let Some((id, was)) = subject(action).and_then(|id| Some((id, *self.side(name).ids.get(&id)?))) else { return };
        let (other, udp) = (name.other(), was.space == Space::Udp);
        let mut now = was;
        match *action {
            Action::Bind { at, .. } if was.stage == Stage::Idle => (now.stage, now.at) = (Stage::Bound, Some(at)),
            Action::Listen { .. } => {
                now.has_listened = true;
                if matches!(was.stage, Stage::Idle | Stage::Bound) {
                    now.stage = Stage::Listening;
                }
            }
            Action::ResolveAddr { dst, .. } if matches!(was.stage, Stage::Idle | Stage::Bound) => {
                (now.stage, now.at) = (Stage::Waits, Some(dst));
                self.tell(name, id, News::Now(Stage::Resolved));
            }
            Action::ResolveRoute { .. } if was.stage == Stage::Resolved => {
                now.stage = Stage::Waits;
                self.tell(name, id, News::Now(Stage::Routed));
            }
            Action::Connect { .. } if was.stage == Stage::Routed => {
                now.stage = Stage::Waits;
                let port = was.at.map(|Place(_, port)| port);
                let heard = |one: &Believed| {
                    one.stage == Stage::Listening && one.space == was.space && one.at.map(|Place(_, port)| port) == port
                };
                let listener = self.side(other).ids.iter().find(|(_, one)| heard(one)).map(|(&slot, _)| slot);
                match listener {
                    Some(listener) => self.tell(other, listener, News::Request(id)),
                    None => self.tell(name, id, News::Now(Stage::Over)),
                }
            }
            Action::Accept { .. } if was.stage == Stage::Requested => {
                now.stage = if udp { Stage::Over } else { Stage::Waits };
                let answer = if udp { Stage::Over } else { Stage::Answered };
                self.tell_peer(other, was, answer);
            }
            Action::Reject { .. } if matches!(was.stage, Stage::Requested | Stage::Answered) => {
                now.stage = Stage::Over;
                self.tell_peer(other, was, Stage::Over);
            }
            Action::Establish { .. } if was.stage == Stage::Answered => {
                now.stage = Stage::Up;
                self.tell_peer(other, was, Stage::Up);
            }
            Action::Disconnect { .. } | Action::Teardown { .. } if matches!(was.stage, Stage::Up | Stage::Down) => {
                now.stage = if was.stage == Stage::Up { Stage::Waits } else { Stage::Over };
                self.tell_peer(other, was, Stage::Down);
                self.tell(name, id, News::Now(Stage::Over));
            }
            Action::AttachQp { .. } => now.has_qp = true,
            Action::DetachQp { .. } => now.has_qp = false,
            Action::Join { group, .. } => now.joined[usize::from(group)] = true,
            Action::Migrate { to, .. } => now.on = to,
            _ => {}
        }
        self.side_mut(name).ids.insert(id, now);
    }

    fn tell(&mut self, side: SideName, id: Slot, news: News) {
        self.side_mut(side).unread.push_back((id, news));
    }

    fn tell_peer(&mut self, side: SideName, id: Believed, stage: Stage) {
        if let Some(peer) = id.peer {
            self.tell(side, peer, News::Now(stage));
        }
    }

    fn read(&mut self, name: SideName, channel: Option<ChannelNo>, most: usize) {
        let side = self.side_mut(name);
        let on = |side: &Side, id: Slot| side.ids.get(&id).map(|id| id.on) == Some(channel);
        let mut requests = Vec::new();
        for _ in 0..most {
            let Some(first) = side.unread.iter().position(|&(id, _)| on(side, id)) else { break };
            let Some((id, news)) = side.unread.remove(first) else { break };
            match news {
                News::Now(stage) => {
                    if let Some(id) = side.ids.get_mut(&id) {
                        id.stage = stage;
                    }
                }
                News::Request(client) => {
                    let Some(&listener) = side.ids.get(&id) else { continue };
                    let child = CHILDREN + side.children;
                    side.children += 1;
                    let new = Believed {
                        stage: Stage::Requested,
                        has_qp: false,
                        has_listened: false,
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

/// The id that an action is about.
fn subject(action: &Action) -> Option<Slot> {
    match *action {
        Action::Bind { id, .. }
        | Action::ResolveAddr { id, .. }
        | Action::ResolveRoute { id }
        | Action::Listen { id, .. }
        | Action::AttachQp { id }
        | Action::DetachQp { id }
        | Action::Connect { id, .. }
        | Action::Accept { id, .. }
        | Action::Reject { id, .. }
        | Action::Establish { id }
        | Action::Disconnect { id }
        | Action::Teardown { id }
        | Action::Notify { id }
        | Action::GetRequest { id }
        | Action::Join { id, .. }
        | Action::Leave { id, .. }
        | Action::SetOption { id, .. }
        | Action::SetEce { id, .. }
        | Action::Migrate { id, .. }
        | Action::Create { id, .. }
        | Action::Destroy { id } => Some(id),
        Action::OpenChannel { .. }
        | Action::CloseChannel { .. }
        | Action::Turn
        | Action::Read { .. }
        | Action::Ack { .. }
        | Action::LetTimePass => None,
    }
}
