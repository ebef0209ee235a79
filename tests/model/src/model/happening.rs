//! External events of an id from peers, timers and the network, and the kernel's reports.

use cmid_proto::CmEvent;

use super::kernel::{Id, Kernel, No, Phase, Unread};

/// An external event of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The awaited result arrives: an address, a route, an answer, a confirmation.
    Answer,
    /// A negative result arrives.
    Refusal,
    /// No result arrives.
    Silence,
    /// The peer disconnects, perhaps at the same moment.
    PeerDisconnects,
    /// The time wait ends.
    TimeWaitEnds,
    /// A peer sends a connection request.
    Request,
    /// The peer's link address changes.
    NeighbourMoves,
    /// The local link address changes.
    AddrChanges,
    /// A join is answered.
    Joined,
    /// A join fails, or a group is lost.
    GroupLost,
    /// The device is removed.
    Removal,
}

impl Happening {
    pub(crate) const ALL: [Happening; 11] = [
        Happening::Answer,
        Happening::Refusal,
        Happening::Silence,
        Happening::PeerDisconnects,
        Happening::TimeWaitEnds,
        Happening::Request,
        Happening::NeighbourMoves,
        Happening::AddrChanges,
        Happening::Joined,
        Happening::GroupLost,
        Happening::Removal,
    ];
}

/// The new phase of an id, and the reported event.
type Effect = (Phase, Option<(CmEvent, i32)>);

const NO_ANSWER: i32 = -110;
const CONSUMER_REJECT: i32 = 28;

/// The steps of a connection (semantics of `cma_ib_handler`, `addr_handler`, `cma_work_handler`).
fn step(id: &Id, what: Happening) -> Option<Effect> {
    use Happening::{Answer, PeerDisconnects, Refusal, Silence, TimeWaitEnds};
    let report = |event, status| Some((event, status));
    Some(match (what, id.stage) {
        (Answer, Phase::AddrQuery) => (Phase::AddrResolved, report(CmEvent::AddrResolved, 0)),
        (Refusal | Silence, Phase::AddrQuery) => (Phase::Bound, report(CmEvent::AddrError, NO_ANSWER)),
        (Answer, Phase::RouteQuery) => (Phase::RouteResolved, report(CmEvent::RouteResolved, 0)),
        (Refusal | Silence, Phase::RouteQuery) => (Phase::AddrResolved, report(CmEvent::RouteError, NO_ANSWER)),
        (Answer, Phase::ReqSent) => (Phase::RepRcvd, report(CmEvent::ConnectResponse, 0)),
        (Answer, Phase::RepSent) => (Phase::Established, report(CmEvent::Established, 0)),
        (Answer, Phase::SidrSent) => (Phase::Over, report(CmEvent::Established, 0)),
        (Answer, Phase::DreqSent) => (Phase::TimeWait, report(CmEvent::Disconnected, 0)),
        (Refusal, Phase::ReqSent | Phase::RepRcvd | Phase::RepSent | Phase::Established) => {
            (Phase::Over, report(CmEvent::Rejected, CONSUMER_REJECT))
        }
        (Refusal, Phase::SidrSent) => (Phase::Over, report(CmEvent::Unreachable, 2)),
        // The peer has ended the connection, and the application has not accepted.
        (Refusal, Phase::ReqRcvd | Phase::SidrRcvd) => (Phase::Over, None),
        (Silence, Phase::ReqSent | Phase::RepSent | Phase::SidrSent) => {
            (Phase::Over, report(CmEvent::Unreachable, NO_ANSWER))
        }
        (Silence, Phase::DreqSent) => (Phase::TimeWait, report(CmEvent::Disconnected, NO_ANSWER)),
        (PeerDisconnects, Phase::RepSent | Phase::Established | Phase::DreqSent) => {
            (Phase::DreqRcvd, report(CmEvent::Disconnected, 0))
        }
        // An answer to a lookup that the library cannot use.
        (PeerDisconnects, Phase::SidrSent) => (Phase::Over, report(CmEvent::AddrError, -22)),
        (TimeWaitEnds, Phase::TimeWait) => (Phase::Over, report(CmEvent::TimewaitExit, 0)),
        _ => return None,
    })
}

impl Kernel {
    /// The currently possible events of an id.
    pub(crate) fn possible(&self, no: No) -> Vec<Happening> {
        Happening::ALL.into_iter().filter(|&what| self.is_possible(no, what)).collect()
    }

    fn is_possible(&self, no: No, what: Happening) -> bool {
        let id = self.id(no);
        if id.removed {
            return false;
        }
        match what {
            Happening::Answer
            | Happening::Refusal
            | Happening::Silence
            | Happening::PeerDisconnects
            | Happening::TimeWaitEnds => step(id, what).is_some(),
            Happening::Request => id.stage == Phase::Listen,
            Happening::NeighbourMoves => id.watched,
            Happening::AddrChanges => id.device && !id.deaf,
            Happening::Joined => id.groups.iter().any(|group| group.joining),
            Happening::GroupLost => id.groups.iter().any(|group| !group.lost),
            Happening::Removal => id.device,
        }
    }

    /// Applies an event, if it is possible.
    pub(crate) fn happen(&mut self, no: No, what: Happening) {
        if !self.is_possible(no, what) {
            return;
        }
        match what {
            Happening::Answer
            | Happening::Refusal
            | Happening::Silence
            | Happening::PeerDisconnects
            | Happening::TimeWaitEnds => self.take_step(no, what),
            Happening::Request => self.request(no),
            Happening::NeighbourMoves => self.report(no, CmEvent::Unreachable, NO_ANSWER),
            Happening::AddrChanges => self.report(no, CmEvent::AddrChange, 0),
            Happening::Joined | Happening::GroupLost => self.answer_join(no, what == Happening::Joined),
            Happening::Removal => {
                // This event is reported; only later ones are not.
                self.report(no, CmEvent::DeviceRemoval, 0);
                self.id_mut(no).removed = true;
            }
        }
    }

    fn take_step(&mut self, no: No, what: Happening) {
        let Some((stage, event)) = step(self.id(no), what) else { return };
        let id = self.id_mut(no);
        // A TIMEWAIT_EXIT is reported after a reported end of the connection, all other events before it.
        let record = if what == Happening::TimeWaitEnds { id.disconnected } else { !id.disconnected };
        id.stage = stage;
        id.device |= stage == Phase::AddrResolved;
        id.disconnected |= matches!(event, Some((CmEvent::Disconnected, _)));
        if let Some((event, status)) = event
            && record
        {
            self.report(no, event, status);
        }
    }

    pub(super) fn report(&mut self, no: No, kind: CmEvent, status: i32) {
        if !self.id(no).deaf {
            self.push(Unread { owner: no, kind, status, child: None, group: None });
        }
    }

    fn request(&mut self, listener: No) {
        let &Id { file, datagram, .. } = self.id(listener);
        let stage = if datagram { Phase::SidrRcvd } else { Phase::ReqRcvd };
        let child = self.insert(Id { stage, device: true, deaf: true, ..Id::new(file, datagram) });
        let kind = CmEvent::ConnectRequest;
        self.push(Unread { owner: listener, kind, status: 0, child: Some(child), group: None });
    }

    /// The oldest open join; for a loss the oldest membership.
    fn answer_join(&mut self, no: No, joined: bool) {
        let found = self.id_mut(no).groups.iter_mut().find(|group| if joined { group.joining } else { !group.lost });
        let Some(group) = found else { return };
        (group.joining, group.lost) = (false, !joined);
        let (kind, status) = if joined { (CmEvent::MulticastJoin, 0) } else { (CmEvent::MulticastError, -22) };
        let group = Some(group.key);
        self.push(Unread { owner: no, kind, status, child: None, group });
    }
}

impl Id {
    /// A new id on a channel.
    pub(crate) fn new(file: super::kernel::File, datagram: bool) -> Self {
        Id { file, datagram, ..Id::default() }
    }
}
