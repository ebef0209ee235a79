//! Memory regions.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmid_proto::Errno;
use cmid_proto::memory::{
    self, Access, Call, Ended, Error, Fault, MrState, Outcome, Policy, Refused, Region, RequestKind, Returned, Target,
    Traffic, Way,
};

use crate::data::library::Request;
use crate::data::pd::{Pd, PdUse};
use crate::data::space::{KeyedRange, Lent, Stretch};
use crate::fabric::Fabric;
use crate::fabric::shared::Shared;
use crate::index::{DeviceNo, MrHandle, PdNo};

/// What is registered: plain memory.
pub type Buffer = Vec<u8>;

/// What is to be re-registered, with handles of domains.
pub type Change = memory::Change<Pd, Buffer>;

/// The machine of one MR.
pub(crate) type Machine = Region<PdUse, Lent, MrHandle>;

/// What came of a re-registration.
#[derive(Debug)]
#[must_use]
pub struct Reregistered {
    /// How it went, or why not. [`Failure::valid`](memory::Failure::valid) says which registration can be used.
    pub result: Result<Way, Error>,
    /// The buffer that the device does not refer to: the old one if the new registration is valid, the new one after a
    /// refusal, or if the old one is valid and the device has never heard of the new. `None` if there was only one, if
    /// neither registration is valid, or if the driver failed at other memory otherwise than with `EOPNOTSUPP`: the region
    /// keeps both then, until [`Mr::deregister`].
    pub buffer: Option<Buffer>,
}

/// A registered buffer. Its bytes are read and written by copies only, since a peer may write at any time.
///
/// Work requests that name it pin it until their completions have been polled, or their QP is destroyed and its completions
/// are gone, also after a removal of the device: [`Mr::reregister`] and [`Mr::deregister`] are refused with
/// [`memory::RefuseReason::InFlight`]. What is sent inline ([`Caps::max_inline`](crate::Caps::max_inline)), and has been copied, does not
/// pin it, nor does what is empty. Dropping it ends the registration, or, if it is pinned or the device refuses, lets the fabric do so as soon as that can be.
#[derive(Debug)]
pub struct Mr {
    pub(crate) fabric: Fabric,
    own: Owned,
}

/// A region, and what it takes to end it.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) device: DeviceNo,
    machine: Arc<Mutex<Machine>>,
}

impl Pd {
    /// Registers a buffer, which belongs to the region until [`Mr::deregister`] (ibv_reg_mr(3)).
    ///
    /// # Errors
    /// With the buffer. Refused for an empty one, for remote write or atomic without local write, and if the domain or
    /// its device is gone. [`Error::Register`] with what the device says: `EOPNOTSUPP` for rights that it cannot grant
    /// (`ON_DEMAND`, `HUGETLB`), `EINVAL` for those that the kernel does not know, `ENOMEM` beyond
    /// [`Config::lock_limit`](crate::Config::lock_limit).
    pub fn register(&self, buffer: impl Into<Buffer>, access: Access) -> Result<Mr, (Buffer, Error)> {
        let buffer = buffer.into();
        self.fabric.shared().sweep();
        let pd = match self.acquire() {
            Ok(pd) => pd,
            Err(refused) => return Err((buffer, refused.into())),
        };
        let shared = self.fabric.shared();
        let mut machine = match Machine::register(pd, shared.lend(buffer), access) {
            Ok(machine) => machine,
            Err((lent, refused)) => return Err((shared.give_back(&lent), refused.into())),
        };
        let ended = machine.run(|call| shared.make(self.device, &call));
        match ended {
            Ok(Some(Ended::Registered(_))) => {
                let own = Owned { device: self.device, machine: Arc::new(Mutex::new(machine)) };
                Ok(Mr { fabric: self.fabric.clone(), own })
            }
            Ok(Some(Ended::NotRegistered(errno, lent))) => Err((shared.give_back(&lent), Error::Register(errno))),
            Ok(_) => Err((Buffer::new(), impossible(RequestKind::Register, &machine).into())),
            Err(fault) => Err((Buffer::new(), fault.into())),
        }
    }
}

impl Mr {
    /// The address that a peer names it by. Another one after another buffer was registered.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.stretch().addr
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stretch().len
    }

    /// Never true: an empty buffer cannot be registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The local key; read it again after every re-registration. 0 if no registration is valid.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.lkey)
    }

    /// The key that a peer names it by; the same as the local one, as with rxe.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.rkey)
    }

    /// Where it is in its life: [`MrState::Registered`], or [`MrState::Unusable`] if a re-registration has left neither
    /// registration or the device is gone. An unusable one can only be deregistered, read and written.
    #[must_use]
    pub fn state(&self) -> MrState {
        self.machine().state()
    }

    /// What may be done with it; `None` if no registration is valid.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        self.machine().access()
    }

    /// How the present registration came to be.
    #[must_use]
    pub fn way(&self) -> Way {
        self.machine().way()
    }

    /// A handle of its domain; `None` if no registration is valid.
    #[must_use]
    pub fn pd(&self) -> Option<Pd> {
        let machine = self.machine();
        machine.pd().map(|pd| Pd::another(&self.fabric, pd.device, pd.no))
    }

    /// Re-registers it (ibv_rereg_mr(3)). Keys and address may have changed afterwards. Refused with
    /// [`memory::RefuseReason::InFlight`] while work requests pin it, and for another buffer with [`memory::RefuseReason::InDoubt`] while it
    /// keeps one of an attempt that failed.
    pub fn reregister(&mut self, change: Change, policy: Policy) -> Reregistered {
        let refused = |buffer, refused: Refused| Reregistered { result: Err(refused.into()), buffer };
        let shared = self.fabric.shared();
        shared.sweep();
        let change = match change.try_map_pd(Pd::acquire) {
            Ok(change) => change,
            Err((change, error)) => return refused(change.buffer, error),
        };
        let buffer = change.buffer.map(|buffer| shared.lend(buffer));
        let change = memory::Change { buffer, pd: change.pd, access: change.access };
        let mut machine = self.own.machine(shared);
        let traffic = traffic(&machine, shared);
        if let Err((change, error)) = machine.reregister(change, policy, traffic) {
            return refused(change.buffer.map(|lent| shared.give_back(&lent)), error);
        }
        match machine.run(|call| shared.make(self.own.device, &call)) {
            Ok(Some(Ended::Reregistered(settled))) => Reregistered {
                result: settled.result.map_err(Error::from),
                buffer: settled.buffer.map(|lent| shared.give_back(&lent)),
            },
            Ok(_) => Reregistered { result: Err(impossible(RequestKind::Reregister, &machine).into()), buffer: None },
            Err(fault) => Reregistered { result: Err(fault.into()), buffer: None },
        }
    }

    /// Ends the registration and gives the buffer back (ibv_dereg_mr(3)); two of them if a re-registration failed
    /// after which the device may have known the other one.
    ///
    /// # Errors
    /// With the region, which can be tried again. Refused with [`memory::RefuseReason::InFlight`] while work requests pin it.
    /// [`Error::Failed`] with what the device says: `EINVAL` while a memory window is bound to it, `EIO` once the
    /// device is removed ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    pub fn deregister(self) -> Result<Returned<Buffer>, (Mr, Error)> {
        self.fabric.shared().sweep();
        match self.own.deregister(self.fabric.shared()) {
            Ok(returned) => Ok(returned),
            Err(error) => Err((self, error)),
        }
    }

    /// Whether a QP of this domain may name it for something that needs these rights.
    pub(crate) fn allows(&self, fabric: &Fabric, pd: PdNo, needs: Access) -> bool {
        let machine = self.machine();
        let own = machine.pd().is_some_and(|own| self.fabric.is(fabric) && own.no == pd);
        own && machine.access().is_some_and(|access| access.contains(needs))
    }

    /// A part of it as a work request names it.
    pub(crate) fn keyed_range(&self, range: Range<usize>) -> Result<KeyedRange, Errno> {
        let len = range.end.checked_sub(range.start).ok_or(Errno::EINVAL)?;
        let part = self.part(range.start, len)?;
        let key = self.machine().keys().ok_or(Errno::EINVAL)?.lkey;
        Ok(KeyedRange { addr: part.addr, key, len })
    }

    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<Stretch, Errno> {
        let whole = self.stretch();
        offset.checked_add(len).filter(|&end| end <= whole.len).ok_or(Errno::EINVAL)?;
        Ok(Stretch { addr: whole.addr + offset as u64, len })
    }

    fn stretch(&self) -> Stretch {
        self.machine().buffer().map_or(Stretch { addr: 0, len: 0 }, Lent::stretch)
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.own.machine(self.fabric.shared())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.fabric.shared().retire(self.own.clone());
    }
}

impl Owned {
    /// The machine, which has been told if the device is gone.
    fn machine(&self, shared: &Shared) -> MutexGuard<'_, Machine> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.with(|world| world.lives(self.device)) {
            machine.handle_removal();
        }
        machine
    }

    pub(crate) fn is_gone(&self, shared: &Shared) -> bool {
        self.machine(shared).state() == MrState::Gone
    }

    pub(crate) fn deregister(&self, shared: &Shared) -> Result<Returned<Buffer>, Error> {
        let mut machine = self.machine(shared);
        let traffic = traffic(&machine, shared);
        machine.deregister(traffic)?;
        match machine.run(|call| shared.make(self.device, &call))? {
            Some(Ended::Deregistered(Returned { buffer, other })) => {
                Ok(Returned { buffer: shared.give_back(&buffer), other: other.map(|other| shared.give_back(&other)) })
            }
            Some(Ended::NotDeregistered(failure)) => Err(failure.into()),
            _ => Err(impossible(RequestKind::Deregister, &machine).into()),
        }
    }
}

/// Whether work in flight names the region. After a removal of the device it may still.
pub(crate) fn traffic(machine: &Machine, shared: &Shared) -> Traffic {
    match machine.named().map(|(pd, keys)| (pd.no, keys.lkey)) {
        Some((pd, key)) if shared.with(|world| world.queues.pins(pd, key)) => Traffic::InFlight,
        Some(_) | None => Traffic::Quiet,
    }
}

/// A request that has ended as another one.
fn impossible(request: RequestKind, machine: &Machine) -> Fault {
    Fault { outcome: request, target: Target::Mr(Some(machine.state())) }
}

impl Shared {
    fn lend(&self, bytes: Buffer) -> Lent {
        self.with(|world| world.memory.space.lend(bytes))
    }

    fn give_back(&self, lent: &Lent) -> Buffer {
        self.with(|world| {
            if world.memory.refers_to(lent.stretch()) {
                world.counters.freed_in_use += 1;
            }
            world.memory.space.give_back(lent)
        })
    }

    /// Makes a call of a machine.
    fn make(&self, device: DeviceNo, call: &Call<'_, PdUse, Lent, MrHandle>) -> Outcome<MrHandle> {
        self.with(|world| match call {
            Call::Register { pd, buffer, access } => {
                Outcome::Registered(world.ibv_reg_mr(device, pd.no, buffer.stretch(), *access))
            }
            Call::Reregister { handle, change } => {
                let request = Request {
                    flags: change.flags(),
                    pd: change.pd.as_ref().map(|pd| pd.no),
                    range: change.buffer.as_ref().map_or(Stretch { addr: 0, len: 0 }, Lent::stretch),
                    access: change.access.unwrap_or(Access::empty()),
                };
                Outcome::Reregistered(world.ibv_rereg_mr(device, **handle, &request))
            }
            Call::Deregister { handle } => Outcome::Deregistered(world.ibv_dereg_mr(device, **handle)),
        })
    }
}
