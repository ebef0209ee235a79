//! The device: PDs, and registrations with their references.

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Code, Keys, MemoryCall, MemoryOutcome, Provider, Reply};

use super::invariant::Invariant;
use super::ledger::{Memory, Use};
use super::scene::{Scene, Truth};

/// The index of a registration in the table.
pub(super) type Handle = usize;

/// The references of a registration. After a re-registration that failed in the middle it may be either of two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registration {
    pub(super) keys: Keys,
    pub(super) pds: Vec<usize>,
    pub(super) buffers: Vec<usize>,
    pub(super) access: Access,
    /// Whether it can be relied on.
    sound: bool,
}

/// The registrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Device {
    table: Vec<Option<Registration>>,
}

/// What a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success.
    Well,
    /// `ibv_reg_mr` or `ibv_dereg_mr` fails with this errno.
    Fails(Errno),
    /// `ibv_rereg_mr` returns this code and errno; the registration is then as given.
    Leaves(i32, Errno, Truth),
}

impl Answer {
    /// All possible answers of a faithful device to a call.
    pub(super) fn all<B>(call: &MemoryCall<'_, Use, B, Handle>, scene: &Scene) -> Vec<Answer> {
        match call {
            MemoryCall::Register { .. } => vec![Answer::Well, Answer::Fails(Errno::ENOMEM)],
            // The first errno leaves the registration as it was. What the second leaves is not known.
            MemoryCall::Deregister { .. } => {
                let losses = scene.losses.then_some(Answer::Fails(Errno::EIO));
                [Answer::Well, Answer::Fails(Errno::EBUSY)].into_iter().chain(losses).collect()
            }
            MemoryCall::Reregister { .. } => Self::of_reregister(scene.provider, scene.truths),
        }
    }

    fn of_reregister(provider: Provider, truths: &[Truth]) -> Vec<Answer> {
        let leaves = |code: Code, errno, truth| Answer::Leaves(code.as_raw(), errno, truth);
        let mut all = vec![
            Answer::Well,
            leaves(Code::Input, Errno::EINVAL, Truth::Old),
            leaves(Code::DontForkNew, Errno::ENOMEM, Truth::Old),
            leaves(Code::DoForkOld, Errno::ENOMEM, Truth::New),
            leaves(Code::Cmd, Errno::EOPNOTSUPP, Truth::Old),
            leaves(Code::Cmd, Errno::EINVAL, Truth::Old),
        ];
        let truths = match provider {
            Provider::Unknown => truths,
            Provider::ChecksFirst => &[Truth::Old],
        };
        for &truth in truths {
            all.push(leaves(Code::Cmd, Errno::EIO, truth));
            all.push(leaves(Code::CmdAndDoForkNew, Errno::ENOMEM, truth));
        }
        all
    }
}

impl Device {
    /// Makes a call that returns `answer`.
    pub(super) fn call(
        &mut self,
        call: &MemoryCall<'_, Use, Memory, Handle>,
        answer: Answer,
    ) -> Result<MemoryOutcome<Handle>, Invariant> {
        match (call, answer) {
            (MemoryCall::Register { pd, buffer, access }, Answer::Well) => {
                let handle = self.table.iter().position(Option::is_none).unwrap_or(self.table.len());
                let keys = Keys { lkey: handle as u32, rkey: 0 };
                let fresh =
                    Registration { keys, pds: vec![pd.0], buffers: vec![buffer.0], access: *access, sound: true };
                self.table.resize(self.table.len().max(handle + 1), None);
                self.table[handle] = Some(fresh);
                Ok(MemoryOutcome::Registered(Ok((handle, keys))))
            }
            (MemoryCall::Register { .. }, Answer::Fails(errno)) => Ok(MemoryOutcome::Registered(Err(errno))),
            (MemoryCall::Deregister { handle }, Answer::Well) => {
                self.take(**handle)?;
                Ok(MemoryOutcome::Deregistered(Ok(())))
            }
            (MemoryCall::Deregister { handle }, Answer::Fails(errno)) => {
                let it = self.get(**handle)?;
                it.sound &= errno == Errno::EBUSY;
                Ok(MemoryOutcome::Deregistered(Err(errno)))
            }
            (MemoryCall::Reregister { handle, change }, _) => {
                let (code, errno, truth) = match answer {
                    Answer::Leaves(code, errno, truth) => (code, errno, truth),
                    Answer::Well | Answer::Fails(_) => (0, Errno::EIO, Truth::New),
                };
                let it = self.get(**handle)?;
                let (pd, buffer) = (change.pd.as_ref().map(|pd| pd.0), change.buffer.as_ref().map(|buffer| buffer.0));
                it.change(pd, buffer, change.access, truth);
                Ok(MemoryOutcome::Reregistered(Reply { code, errno, keys: it.keys }))
            }
            (MemoryCall::Register { .. } | MemoryCall::Deregister { .. }, Answer::Leaves(..)) => Err(Invariant::Panics),
        }
    }

    fn get(&mut self, handle: Handle) -> Result<&mut Registration, Invariant> {
        self.table.get_mut(handle).and_then(Option::as_mut).ok_or(Invariant::UsesWhatIsFreed)
    }

    fn take(&mut self, handle: Handle) -> Result<Registration, Invariant> {
        let taken = self.table.get_mut(handle).and_then(Option::take).ok_or(Invariant::UsesWhatIsFreed);
        while self.table.pop_if(|last| last.is_none()).is_some() {}
        taken
    }

    /// The registration with these keys, if it can be relied on.
    pub(super) fn with_keys(&self, keys: Keys) -> Option<&Registration> {
        self.all().find(|it| it.keys == keys && it.sound)
    }

    /// Every registration that is there.
    pub(super) fn all(&self) -> impl Iterator<Item = &Registration> {
        self.table.iter().flatten()
    }
}

impl Registration {
    fn change(&mut self, pd: Option<usize>, buffer: Option<usize>, access: Option<Access>, truth: Truth) {
        match truth {
            Truth::Old => {}
            Truth::New => {
                self.pds = pd.map_or(core::mem::take(&mut self.pds), |pd| vec![pd]);
                self.buffers = buffer.map_or(core::mem::take(&mut self.buffers), |buffer| vec![buffer]);
                self.access = access.unwrap_or(self.access);
                // A re-registration may change the keys; this one changes one of them, to and fro.
                self.keys.rkey ^= 1;
            }
            Truth::Either => {
                self.sound = false;
                self.pds.extend(pd.filter(|pd| !self.pds.contains(pd)));
                self.buffers.extend(buffer.filter(|buffer| !self.buffers.contains(buffer)));
                self.pds.sort_unstable();
                self.buffers.sort_unstable();
            }
        }
    }
}
