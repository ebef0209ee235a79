//! The library's side of memory (libibverbs, `verbs.c`, and a provider): its checks, advice and records before and
//! after the kernel call. Functions are named after the library's.

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Changes, Code, Keys, Reply};

use crate::data::fault::{ReregFault, Resource};
use crate::data::library::{IbvMr, Request};
use crate::data::space::Stretch;
use crate::fabric::config::Rereg;
use crate::fabric::world::World;
use crate::index::{DeviceNo, MrHandle, MwNo, PdNo};

impl World {
    /// `ibv_alloc_pd`.
    pub(crate) fn ibv_alloc_pd(&mut self, device: DeviceNo) -> Result<PdNo, Errno> {
        self.command(device)?;
        Ok(self.memory.alloc_pd(device.host))
    }

    /// `ibv_dealloc_pd`.
    pub(crate) fn ibv_dealloc_pd(&mut self, device: DeviceNo, pd: PdNo) -> Result<(), Errno> {
        if self.command(device).is_err() {
            return self.destroy_after_removal();
        }
        self.memory.dealloc_pd(pd)
    }

    /// `ibv_alloc_mw`.
    pub(crate) fn ibv_alloc_mw(&mut self, device: DeviceNo, pd: PdNo) -> Result<(MwNo, u32), Errno> {
        self.command(device)?;
        // libsiw does not have it.
        if self.is_iwarp(device.host) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.memory.alloc_mw(device.host, pd)
    }

    /// `ibv_dealloc_mw`.
    pub(crate) fn ibv_dealloc_mw(&mut self, device: DeviceNo, mw: MwNo) -> Result<(), Errno> {
        if self.command(device).is_err() {
            return self.destroy_after_removal();
        }
        self.sweep = true;
        self.memory.dealloc_mw(mw)
    }

    /// `ibv_reg_mr`.
    pub(crate) fn ibv_reg_mr(
        &mut self,
        device: DeviceNo,
        pd: PdNo,
        range: Stretch,
        access: Access,
    ) -> Result<(MrHandle, Keys), Errno> {
        let on_demand = access.contains(Access::ON_DEMAND);
        if !on_demand {
            self.ibv_dontfork_range(range)?;
        }
        let registered = self.provider_reg_mr(device, pd, range, access);
        match registered {
            Ok((handle, keys)) => {
                self.library.mrs.insert(handle, IbvMr { range, keys, on_demand });
            }
            Err(_) if !on_demand => self.ibv_dofork_range(range),
            Err(_) => {}
        }
        registered
    }

    /// `ibv_dereg_mr`.
    pub(crate) fn ibv_dereg_mr(&mut self, device: DeviceNo, handle: MrHandle) -> Result<(), Errno> {
        match self.command(device) {
            Ok(()) => {
                if let Some(errno) = self.faults(device).and_then(|faults| faults.deregister.pop_front()) {
                    return Err(errno);
                }
                self.memory.dereg_mr(device.host, handle)?;
                self.end_copies_to(handle);
            }
            Err(_) => self.destroy_after_removal()?,
        }
        if let Some(mr) = self.library.mrs.remove(&handle).filter(|mr| !mr.on_demand) {
            self.ibv_dofork_range(mr.range);
        }
        Ok(())
    }

    /// `ibv_rereg_mr`, stage by stage. Omits its first check, that the MR is a plain one, because all are.
    pub(crate) fn ibv_rereg_mr(&mut self, device: DeviceNo, handle: MrHandle, request: &Request) -> Reply {
        let old = self.library.mrs.get(&handle).copied();
        let keys = old.map_or(Keys::default(), |mr| mr.keys);
        let failed = |code: Code, errno| Reply { code: code.as_raw(), errno, keys };
        let Some(old) = old else { return failed(Code::Input, Errno::EINVAL) };
        let named = |flag| request.flags.contains(flag);
        let moves = named(Changes::TRANSLATION);
        let unknown = !(request.flags - Changes::all()).is_empty();
        let nowhere = moves && (request.range.addr == 0 || request.range.len == 0);
        let unasked = !named(Changes::ACCESS) && !request.access.is_empty();
        if unknown || nowhere || unasked {
            return failed(Code::Input, Errno::EINVAL);
        }
        if moves {
            let of = |fault| if let ReregFault::DontForkNew(errno) = fault { Some(errno) } else { None };
            let fault = self.rereg_fault_of_fork(device, of);
            if let Err(errno) = fault.map_or_else(|| self.ibv_dontfork_range(request.range), Err) {
                return failed(Code::DontForkNew, errno);
            }
        }
        match self.provider_rereg_mr(device, handle, request) {
            Ok(keys) => {
                self.rereg_done(handle, request, keys);
                let done = |code: Code, errno| Reply { code: code.as_raw(), errno, keys };
                if moves {
                    if let Some(errno) = self.rereg_dofork_old(device, old.range) {
                        return done(Code::DoForkOld, errno);
                    }
                }
                done(Code::Done, Errno(0))
            }
            Err((code, errno)) => {
                if moves && code != Code::CmdAndDoForkNew {
                    self.ibv_dofork_range(request.range);
                }
                failed(code, errno)
            }
        }
    }

    /// Updates the fields after success (`ibv_cmd_rereg_mr`).
    fn rereg_done(&mut self, handle: MrHandle, request: &Request, keys: Keys) {
        if let Some(mr) = self.library.mrs.get_mut(&handle) {
            mr.keys = keys;
            if request.flags.contains(Changes::TRANSLATION) {
                mr.range = request.range;
            }
        }
    }

    /// Gives the old memory back to forked children; returns the errno of a failure.
    fn rereg_dofork_old(&mut self, device: DeviceNo, old: Stretch) -> Option<Errno> {
        let of = |fault| if let ReregFault::DoForkOld(errno) = fault { Some(errno) } else { None };
        let fault = self.rereg_fault_of_fork(device, of);
        if fault.is_none() {
            self.ibv_dofork_range(old);
        }
        fault
    }

    /// `ibv_dontfork_range`; no effect unless fork support is on.
    fn ibv_dontfork_range(&mut self, range: Stretch) -> Result<(), Errno> {
        if !self.config.fork {
            return Ok(());
        }
        // madvise(2): ENOMEM for unmapped memory.
        self.memory.space.bytes(range).ok_or(Errno::ENOMEM)?;
        self.library.fork.dontfork(range);
        Ok(())
    }

    /// `ibv_dofork_range`; no effect unless fork support is on.
    fn ibv_dofork_range(&mut self, range: Stretch) {
        if self.config.fork {
            self.library.fork.dofork(range);
        }
    }

    fn provider_reg_mr(
        &mut self,
        device: DeviceNo,
        pd: PdNo,
        range: Stretch,
        access: Access,
    ) -> Result<(MrHandle, Keys), Errno> {
        self.command(device)?;
        self.grant(device.host, Resource::Mr)?;
        self.memory.reg_mr(&self.config, device.host, pd, range, access)
    }

    /// The provider's operation, and the library's handling of its failure.
    fn provider_rereg_mr(
        &mut self,
        device: DeviceNo,
        handle: MrHandle,
        request: &Request,
    ) -> Result<Keys, (Code, Errno)> {
        let cmd = |errno| (Code::Cmd, errno);
        if self.config.rereg == Rereg::None {
            // `dummy_ops.c`
            return Err(cmd(Errno::EOPNOTSUPP));
        }
        self.command(device).map_err(cmd)?;
        let with_fork = self.config.fork && request.flags.contains(Changes::TRANSLATION);
        let mut code = Code::Cmd;
        let faults = self.hosts.get_mut(device.host.0).map(|host| &mut host.faults);
        let strike = || {
            faults?.take_reregister(|fault| match fault {
                ReregFault::Cmd { errno, left } => Some((errno, left)),
                ReregFault::CmdAndDoForkNew { errno, left } if with_fork => {
                    code = Code::CmdAndDoForkNew;
                    Some((errno, left))
                }
                ReregFault::Undocumented { code: raw, errno, left } => {
                    code = Code::from_raw(raw);
                    Some((errno, left))
                }
                ReregFault::CmdAndDoForkNew { .. } | ReregFault::DontForkNew(_) | ReregFault::DoForkOld(_) => None,
            })
        };
        let result = self.memory.rereg_mr(&self.config, device.host, handle, request, strike);
        result.map_err(|errno| (code, errno))
    }

    /// Fails every command to a removed device (`ib_uverbs_ioctl`).
    fn command(&self, device: DeviceNo) -> Result<(), Errno> {
        if self.lives(device) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// The result of destroying an object of a removed device (`verbs_is_destroy_err`).
    fn destroy_after_removal(&self) -> Result<(), Errno> {
        if self.config.destroy_after_removal { Ok(()) } else { Err(Errno::EIO) }
    }

    fn faults(&mut self, device: DeviceNo) -> Option<&mut crate::data::fault::MemoryFaults> {
        self.hosts.get_mut(device.host.0).map(|host| &mut host.faults)
    }

    /// Takes a fault of the advice; requires fork support.
    fn rereg_fault_of_fork(
        &mut self,
        device: DeviceNo,
        wanted: impl FnOnce(ReregFault) -> Option<Errno>,
    ) -> Option<Errno> {
        if !self.config.fork {
            return None;
        }
        self.faults(device)?.take_reregister(wanted)
    }
}

#[cfg(test)]
mod tests;
