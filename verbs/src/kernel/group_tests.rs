//! The memberships of group events: of kernels whose events name the membership, and of kernels with the fix that is
//! proposed for `ucma_create_uevent`, whose events name the id.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use cmid_proto::{Call, CmEvent, Device as _, Errno, GroupKey, IdKey, Outcome, Pollable as _, PortSpace};

use crate::kernel::abi::{Command, offset};
use crate::kernel::for_tests::{CREATE_ID, GET_EVENT, channel, id, number_of, put_event, with_id};
use crate::kernel::{KernelCm, with_kernel};

const JOIN_MCAST: u32 = Command::JoinMcast as u32;
/// The number of the id, which is also that of a membership: the kernel counts them apart.
const ID: u32 = 2;
const ADDRS: [&str; 4] = ["239.1.1.1:0", "239.1.1.2:0", "[ff0e::99]:0", "239.1.1.1:0"];
const JOIN: CmEvent = CmEvent::MulticastJoin;
const ERROR: CmEvent = CmEvent::MulticastError;

fn group(number: u32) -> GroupKey {
    GroupKey::from_parts(0, 100 + number, 1).unwrap()
}

/// What an event of the kernel names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Names {
    Membership,
    Id,
}

#[derive(Default)]
struct Kernel {
    /// The uids of the id and of the memberships.
    uid: u64,
    uids: Vec<u64>,
    unread: VecDeque<(CmEvent, u32)>,
    /// Whether the first read, at the open, is over.
    is_open: bool,
}

impl Kernel {
    fn answer(&mut self, names: Names, command: &[u8], into: &mut [u8]) -> Outcome {
        let long = |at: usize| u64::from_ne_bytes(command[at..at + 8].try_into().unwrap());
        match number_of(command)? {
            CREATE_ID => {
                self.uid = long(8);
                into[..4].copy_from_slice(&ID.to_ne_bytes());
            }
            JOIN_MCAST => {
                into[..4].copy_from_slice(&(self.uids.len() as u32).to_ne_bytes());
                self.uids.push(long(16));
            }
            GET_EVENT if !std::mem::replace(&mut self.is_open, true) => return Err(Errno::EAGAIN),
            GET_EVENT => {
                let (kind, number) = self.unread.pop_front().ok_or(Errno::EAGAIN)?;
                let (uid, handle) = match names {
                    Names::Membership => (self.uids[number as usize], number),
                    Names::Id => (self.uid, ID),
                };
                put_event(into, uid, handle, kind);
                if kind == JOIN {
                    let path = &mut into[offset::EVENT_PARAM + offset::UD_AH..];
                    path[..16].copy_from_slice(&gid_of(ADDRS[number as usize]));
                    // Its address is global.
                    path[29] = 1;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The GID of a group on RoCE.
fn gid_of(addr: &str) -> [u8; 16] {
    match addr.parse::<SocketAddr>().unwrap().ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// An id with a membership of each address, and its kernel.
struct World {
    device: KernelCm,
    id: IdKey,
    kernel: Rc<RefCell<Kernel>>,
}

impl World {
    /// Reads these events. Returns the types and the memberships that are reported.
    fn read(&mut self, unread: &[(CmEvent, u32)]) -> Vec<(CmEvent, Option<u32>)> {
        self.kernel.borrow_mut().unread.extend(unread);
        let mut reported = Vec::new();
        while let Some(raw) = self.device.fetch(channel(0), id(9)).unwrap() {
            assert_eq!((raw.id, raw.datagram.is_some()), (self.id, raw.kind == JOIN));
            reported.push((raw.kind, raw.group.map(|key| key.slot() as u32 - 100)));
        }
        reported
    }

    fn leave(&mut self, number: u32) {
        let addr = ADDRS[number as usize].parse().unwrap();
        self.device.call(&Call::Leave { id: self.id, group: group(number), addr }, &[]).unwrap();
    }

    /// Moves the id to another device, under another key.
    fn adopted(&mut self) {
        let mut other = self.device.sibling();
        let handle = self.device.release(self.id, channel(0)).unwrap();
        self.id = id(5);
        other.adopt(self.id, channel(0), handle).unwrap();
        self.device = other;
    }
}

fn with_groups(names: Names, run: impl FnOnce(World)) {
    let kernel = Rc::new(RefCell::new(Kernel::default()));
    let script = Rc::clone(&kernel);
    with_kernel(
        move |command, into| script.borrow_mut().answer(names, command, into),
        || {
            let (mut device, id) = (with_id(PortSpace::Udp), id(0));
            for (number, addr) in (0..).zip(ADDRS) {
                let (group, addr) = (group(number), addr.parse().unwrap());
                device.call(&Call::Join { id, group, addr, send_only: false }, &[]).unwrap();
            }
            run(World { device, id, kernel });
        },
    );
}

#[test]
fn a_join_has_its_membership_whatever_the_event_names() {
    for names in [Names::Membership, Names::Id] {
        for adopt in [false, true] {
            with_groups(names, |mut world| {
                if adopt {
                    world.adopted();
                }
                // Memberships of the same address end in their order.
                for number in [2, 0, 3, 1] {
                    assert_eq!(world.read(&[(JOIN, number)]), [(JOIN, Some(number))], "{names:?}, adopted: {adopt}");
                }
            });
        }
    }
}

#[test]
fn an_error_has_its_membership() {
    with_groups(Names::Membership, |mut world| {
        for number in [2, 0, 3, 1, 2] {
            assert_eq!(world.read(&[(ERROR, number)]), [(ERROR, Some(number))]);
        }
    });
    with_groups(Names::Id, |mut world| {
        // Joins end in their order.
        assert_eq!(
            world.read(&[(JOIN, 0), (ERROR, 1), (JOIN, 2)]),
            [(JOIN, Some(0)), (ERROR, Some(1)), (JOIN, Some(2))]
        );
        assert_eq!(world.read(&[(ERROR, 3)]), [(ERROR, Some(3))]);
        // A group that is lost later is told apart from others only if there are none.
        assert_eq!(world.read(&[(ERROR, 0)]), []);
        (1..4).for_each(|number| world.leave(number));
        assert_eq!(world.read(&[(ERROR, 0)]), [(ERROR, Some(0))]);
    });
}

#[test]
fn an_event_of_a_membership_that_is_left_is_not_reported() {
    for names in [Names::Membership, Names::Id] {
        with_groups(names, |mut world| {
            world.leave(1);
            assert_eq!(world.read(&[(JOIN, 1), (JOIN, 2)]), [(JOIN, Some(2))], "{names:?}");
        });
    }
}
