//! The kernel: arbitrary answers, and a record of what was read and destroyed.

use cmid_proto::{CmEvent, Errno, Outcome};

/// Numbers of commands (`rdma/rdma_user_cm.h`).
const CREATE_ID: u32 = 0;
const DESTROY_ID: u32 = 1;
const RESOLVE_IP: u32 = 3;
const RESOLVE_ROUTE: u32 = 4;
const CONNECT: u32 = 6;
const LISTEN: u32 = 7;
const ACCEPT: u32 = 8;
const DISCONNECT: u32 = 10;
const GET_EVENT: u32 = 12;
const RESOLVE_ADDR: u32 = 21;
const JOIN_MCAST: u32 = 22;

/// The length of `struct rdma_ucm_event_resp`, and that of kernels without ECE.
pub(super) const EVENT: usize = 336;
const EVENT_OLD: usize = 324;

/// Errors of commands, transient ones included.
const ERRNOS: [Errno; 8] = [
    Errno::EINVAL,
    Errno::ENOMEM,
    Errno::ENODEV,
    Errno::EAGAIN,
    Errno::EINTR,
    Errno::EACCES,
    Errno(0),
    Errno(i32::MIN),
];

/// The kernel.
#[derive(Default)]
pub(super) struct Kernel {
    answers: Vec<u8>,
    at: usize,
    handles: u32,
    /// What ids are reported under.
    uids: Vec<u64>,
    /// The same by handle, for ids that were created or accepted.
    created: Vec<(u32, u64)>,
    /// Events that a faithful kernel would report: uid, code, and the handle of a membership.
    due: Vec<(u64, u32, u32)>,
    /// The events that were read, and the handles that were destroyed, since the record was last taken.
    pub(super) events: Vec<[u8; EVENT]>,
    pub(super) destroyed: Vec<u32>,
}

impl Kernel {
    pub(super) fn new(answers: &[u8]) -> Self {
        Kernel { answers: answers.to_vec(), ..Kernel::default() }
    }

    /// The next byte; 0 at the end.
    fn byte(&mut self) -> u8 {
        let byte = self.answers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// Fills a part of an answer.
    fn fill(&mut self, into: &mut [u8]) {
        let from = self.answers.get(self.at..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        self.at += len;
    }

    /// Makes a command.
    pub(super) fn answer(&mut self, command: &[u8], into: &mut [u8]) -> Outcome {
        let half = |at| usize::from(u16::from_ne_bytes([command[at], command[at + 1]]));
        assert_eq!((half(4), half(6)), (command.len() - 8, into.len()), "lengths in the header");
        match word(command, 0) {
            GET_EVENT => return self.event(into),
            CREATE_ID | ACCEPT => self.uids.push(long(command, 8)),
            DESTROY_ID => self.destroyed.push(word(command, 16)),
            _ => {}
        }
        match self.byte() {
            // As the kernel answers: a new handle, or the number of events.
            0..160 => {
                self.handles += 1;
                let len = into.len().min(4);
                into[..len].copy_from_slice(&self.handles.to_ne_bytes()[..len]);
                self.react(command);
                Ok(())
            }
            160..208 => {
                let len = usize::from(self.byte()).min(into.len());
                self.fill(&mut into[..len]);
                Ok(())
            }
            failed => Err(ERRNOS[usize::from(failed) % ERRNOS.len()]),
        }
    }

    /// Notes the event that follows a command.
    fn react(&mut self, command: &[u8]) {
        let uid = |at| self.created.iter().find(|(handle, _)| *handle == word(command, at)).map(|&(_, uid)| uid);
        let (uid, kind) = match word(command, 0) {
            CREATE_ID => return self.created.push((self.handles, long(command, 8))),
            RESOLVE_IP => (uid(8 + 56), CmEvent::AddrResolved),
            RESOLVE_ADDR => (uid(8), CmEvent::AddrResolved),
            RESOLVE_ROUTE => (uid(8), CmEvent::RouteResolved),
            CONNECT => (uid(8 + 272), CmEvent::ConnectResponse),
            LISTEN => (uid(8), CmEvent::ConnectRequest),
            ACCEPT => {
                self.created.push((word(command, 8 + 8 + 272), long(command, 8)));
                (Some(long(command, 8)), CmEvent::Established)
            }
            DISCONNECT => (uid(8), CmEvent::Disconnected),
            JOIN_MCAST => (Some(long(command, 16)), CmEvent::MulticastJoin),
            _ => return,
        };
        self.due.extend(uid.map(|uid| (uid, kind.code(), self.handles)));
    }

    fn event(&mut self, into: &mut [u8]) -> Outcome {
        let choice = self.byte();
        match choice {
            0..64 => return Err(Errno::EAGAIN),
            64..80 => return Err(ERRNOS[usize::from(choice) % ERRNOS.len()]),
            _ => {}
        }
        let mut event = [0; EVENT];
        let len = if choice.is_multiple_of(8) { EVENT_OLD } else { EVENT };
        let (code, uid, contents) = (self.byte(), self.byte(), usize::from(self.byte()));
        self.fill(&mut event[16..16 + contents.min(EVENT_OLD - 16)]);
        // The lengths of private data, whether there is a global route, and ECE.
        for at in [20 + 264, 20 + 296, 20 + 37, 328, 332] {
            event[at] = self.byte();
        }
        let due = if choice < 160 { None } else { self.due.pop() };
        let code = if code < 240 { u32::from(code % 20) } else { u32::from(code) << 8 | 7 };
        let known = (!self.uids.is_empty()).then(|| self.uids[usize::from(uid) % self.uids.len()]);
        let uid = match uid {
            0..240 => known.unwrap_or(0),
            255 => u64::MAX,
            // The form of a key, as of an id that is gone.
            _ => u64::from(uid) << 24 | 5,
        };
        self.handles += 1;
        let (uid, code, membership) = due.map_or((uid, code, None), |(uid, code, handle)| {
            event[16..20].fill(0);
            (uid, code, (code == CmEvent::MulticastJoin.code()).then_some(handle))
        });
        // The id of a request is new. Some other events have the number of no id.
        let of_id = |(handle, of): &(u32, u64)| (*of == uid).then_some(*handle);
        let known = self.created.iter().rev().find_map(of_id);
        let known = known.filter(|_| code != CmEvent::ConnectRequest.code() && choice % 4 != 3);
        event[..8].copy_from_slice(&uid.to_ne_bytes());
        event[8..12].copy_from_slice(&membership.or(known).unwrap_or(self.handles).to_ne_bytes());
        event[12..16].copy_from_slice(&code.to_ne_bytes());
        event[len..].fill(0);
        into[..len].copy_from_slice(&event[..len]);
        self.events.push(event);
        Ok(())
    }

    /// Whether an id was ever to be reported under this number.
    pub(super) fn knows(&self, uid: u64) -> bool {
        self.uids.contains(&uid)
    }
}

pub(super) fn word(from: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(from[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn long(from: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(from[at..at + 8].try_into().expect("8 bytes"))
}
