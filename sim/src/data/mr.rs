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

/// A buffer for registration: plain memory.
pub type Buffer = Vec<u8>;

/// The parameters of a re-registration, with domain handles.
pub type Change = memory::Change<Pd, Buffer>;

/// The state machine of one MR.
pub(crate) type Machine = Region<PdUse, Lent, MrHandle>;

/// The result of a re-registration.
#[derive(Debug)]
#[must_use]
pub struct Reregistered {
    /// The way it was done, or the error. [`Failure::valid`](memory::Failure::valid) is the registration that remains
    /// valid.
    pub result: Result<Way, Error>,
    /// The buffer that the device does not refer to. It is the old one if the new registration is valid. It is the
    /// new one after a refusal, or if the old registration is valid and the device has no record of the new one.
    /// `None` if there is only one buffer, if neither registration is valid, or if the driver failed on other memory
    /// with an errno other than `EOPNOTSUPP`; the region then keeps both until [`Mr::deregister`].
    pub buffer: Option<Buffer>,
}

/// A registered buffer. Its bytes are accessed by copies only, because a peer may write at any time.
///
/// Work requests that use it pin it, until their completions are polled, or until their QP is destroyed and its
/// completions are gone. This holds also after a removal of the device. While it is pinned, [`Mr::reregister`] and
/// [`Mr::deregister`] are refused with [`memory::RefuseReason::InFlight`]. Inline sends
/// ([`Caps::max_inline`](crate::Caps::max_inline)) and empty ranges do not pin it. Dropping it deregisters it. If it
/// is pinned or the device refuses, the fabric deregisters it as soon as possible.
#[derive(Debug)]
pub struct Mr {
    pub(crate) fabric: Fabric,
    own: Owned,
}

/// A region, and the data for its deregistration.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) device: DeviceNo,
    machine: Arc<Mutex<Machine>>,
}

impl Pd {
    /// Registers a buffer; the region owns it until [`Mr::deregister`] (ibv_reg_mr(3)).
    ///
    /// # Errors
    /// Returns the buffer with the error. Refused for an empty buffer, for remote write or atomic without local
    /// write, and if the domain or its device is gone. [`Error::Register`] with the errno of the device: `EOPNOTSUPP`
    /// for rights that it does not support (`ON_DEMAND`, `HUGETLB`), `EINVAL` for rights that the kernel does not
    /// know, `ENOMEM` beyond [`Config::lock_limit`](crate::Config::lock_limit).
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
    /// The address for remote access. Changes when another buffer is registered.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.stretch().addr
    }

    /// The length in bytes.
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

    /// The remote key; equal to the local key, as with rxe.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.machine().keys().map_or(0, |keys| keys.rkey)
    }

    /// Its state: [`MrState::Registered`], or [`MrState::Unusable`] if a re-registration has left neither
    /// registration or the device is gone. An unusable region can only be deregistered, read and written.
    #[must_use]
    pub fn state(&self) -> MrState {
        self.machine().state()
    }

    /// Its access rights; `None` if no registration is valid.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        self.machine().access()
    }

    /// How the current registration was made.
    #[must_use]
    pub fn way(&self) -> Way {
        self.machine().way()
    }

    /// A new handle of its domain; `None` if no registration is valid.
    #[must_use]
    pub fn pd(&self) -> Option<Pd> {
        let machine = self.machine();
        machine.pd().map(|pd| Pd::another(&self.fabric, pd.device, pd.no))
    }

    /// Re-registers it (ibv_rereg_mr(3)). Keys and address may change. Refused with
    /// [`memory::RefuseReason::InFlight`] while work requests pin it. A new buffer is refused with
    /// [`memory::RefuseReason::InDoubt`] while the region keeps one of a failed attempt.
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

    /// Deregisters it and returns the buffer (ibv_dereg_mr(3)). Returns two buffers if a re-registration failed after
    /// which the device may refer to either.
    ///
    /// # Errors
    /// Returns the region with the error; retry is possible. Refused with [`memory::RefuseReason::InFlight`] while
    /// work requests pin it. [`Error::Failed`] with the errno of the device: `EINVAL` while a memory window is bound
    /// to it, `EIO` once the device is removed
    /// ([`Config::destroy_after_removal`](crate::Config::destroy_after_removal)).
    pub fn deregister(self) -> Result<Returned<Buffer>, (Mr, Error)> {
        self.fabric.shared().sweep();
        match self.own.deregister(self.fabric.shared()) {
            Ok(returned) => Ok(returned),
            Err(error) => Err((self, error)),
        }
    }

    /// Whether a QP of this domain may use it with these rights.
    pub(crate) fn allows(&self, fabric: &Fabric, pd: PdNo, needs: Access) -> bool {
        let machine = self.machine();
        let own = machine.pd().is_some_and(|own| self.fabric.is(fabric) && own.no == pd);
        own && machine.access().is_some_and(|access| access.contains(needs))
    }

    /// A part of it for a work request.
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
    /// Locks the state machine. Reports a removal of the device to it first.
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

/// Whether work in flight uses the region. This is possible also after a removal of the device.
pub(crate) fn traffic(machine: &Machine, shared: &Shared) -> Traffic {
    match machine.named().map(|(pd, keys)| (pd.no, keys.lkey)) {
        Some((pd, key)) if shared.with(|world| world.queues.pins(pd, key)) => Traffic::InFlight,
        Some(_) | None => Traffic::Quiet,
    }
}

/// The fault of an outcome that does not match its request.
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

    /// Executes a call of a state machine.
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
