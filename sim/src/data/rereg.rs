//! The library's side of memory (libibverbs, `verbs.c`, and a provider): its checks before the kernel call. Functions are
//! named after the library's.

use cmid_proto::Errno;
use cmid_proto::memory::{Access, Changes, Code, Keys, Reply};

use crate::data::fault::{ReregFault, Resource};
use crate::data::memory::Request;
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
        self.command(device)?;
        self.grant(device.host, Resource::Mr)?;
        self.memory.reg_mr(&self.config, device.host, pd, range, access)
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
        Ok(())
    }

    /// `ibv_rereg_mr`, stage by stage. Omits its first check, that the MR is a plain one, because all are; and the advice
    /// about forks (`ibv_madvise_range`), of which only failures can be seen.
    pub(crate) fn ibv_rereg_mr(&mut self, device: DeviceNo, handle: MrHandle, request: &Request) -> Reply {
        let keys = self.memory.mrs.get(&handle).map_or(Keys::default(), |mr| mr.keys);
        let reply = |code: Code, errno, keys| Reply { code: code.as_raw(), errno, keys };
        let named = |flag| request.flags.contains(flag);
        let moves = named(Changes::TRANSLATION);
        let unknown = !(request.flags - Changes::all()).is_empty();
        let nowhere = moves && (request.range.addr == 0 || request.range.len == 0);
        let unasked = !named(Changes::ACCESS) && !request.access.is_empty();
        if unknown || nowhere || unasked {
            return reply(Code::Input, Errno::EINVAL, keys);
        }
        let advice = |code| move |fault: ReregFault| moves && fault.code == code;
        if let Some(fault) = self.rereg_fault(device, advice(Code::DontForkNew)) {
            return reply(fault.code, fault.errno, keys);
        }
        match self.provider_rereg_mr(device, handle, request) {
            Ok(keys) => match self.rereg_fault(device, advice(Code::DoForkOld)) {
                Some(fault) => reply(fault.code, fault.errno, keys),
                None => reply(Code::Done, Errno(0), keys),
            },
            Err((code, errno)) => reply(code, errno, keys),
        }
    }

    /// The provider's operation.
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
        let moves = request.flags.contains(Changes::TRANSLATION);
        let is_of_driver = |fault: ReregFault| match fault.code {
            Code::DontForkNew | Code::DoForkOld => false,
            Code::CmdAndDoForkNew => moves,
            Code::Done | Code::Input | Code::Cmd | Code::Unknown(_) => true,
        };
        let mut code = Code::Cmd;
        let faults = self.hosts.get_mut(device.host.0).map(|host| &mut host.faults);
        let strike = || {
            let fault = faults?.take_reregister(is_of_driver)?;
            code = fault.code;
            Some((fault.errno, fault.left))
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

    /// Takes the next fault of a re-registration, if it is such a one.
    fn rereg_fault(&mut self, device: DeviceNo, is_it: impl FnOnce(ReregFault) -> bool) -> Option<ReregFault> {
        self.faults(device)?.take_reregister(is_it)
    }
}

#[cfg(test)]
mod tests;
