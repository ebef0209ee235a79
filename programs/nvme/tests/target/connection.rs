//! A queue of the target.

use std::collections::{BTreeMap, VecDeque};

use cmid_mio::proto::Errno;
use cmid_mio::proto::datapath::{
    Access, Attaching, Caps, Completion, CreateError, DataPath, Pool, Remote, SendWr, WcOpcode, prelude::*,
};
use cmid_mio::sim::SimDevice;
use cmid_nvme::wire::{CmRequest, ConnectData, Cqe, Sgl, Sqe, Status};

use super::{BLOCK, BLOCKS, Disk, Wrong};

/// The most bytes of data in a capsule, and of a command.
const IN_CAPSULE: usize = 1024;
const TRANSFER: usize = 4096;

/// The most bytes of an answer: more than one that is right has.
const RESPONSE: usize = 128;

/// The work requests that move data have numbers from here on, by the slot.
const DATA: u64 = 1 << 20;

/// A command whose data is on its way.
struct Moving {
    entry: Sqe,
    reads: bool,
}

pub(crate) struct Connection {
    qp: <SimDevice as DataPath>::Qp,
    pub(crate) cq: <SimDevice as DataPath>::Cq,
    responses: Pool<<SimDevice as DataPath>::Piece>,
    region: <SimDevice as DataPath>::Mr,
    request: CmRequest,
    size: u16,
    sq_head: u16,
    keeps_head: bool,
    cntlid: u16,
    moving: Vec<Option<Moving>>,
    /// Answers that are held back for so many turns.
    held: VecDeque<(u32, Cqe)>,
    /// The keys that are invalidated with the answers, by the commands.
    keys: BTreeMap<u16, u32>,
    /// A request for an asynchronous event.
    event: Option<u16>,
}

impl Connection {
    pub(crate) fn attach(device: &mut SimDevice, to: Attaching<'_>, request: CmRequest) -> Result<Self, CreateError> {
        let size = usize::from(request.size);
        let entries = u32::from(request.size);
        let pd = device.alloc_pd(to.id())?;
        let cq = device.create_cq(to.id(), 4 * entries)?;
        let capsule = Sqe::LEN + if request.qid == 0 { 0 } else { IN_CAPSULE };
        let capsules = pd.pool(vec![0; size * capsule], capsule, Access::empty())?;
        let responses = pd.pool(vec![0; 2 * size * RESPONSE], RESPONSE, Access::empty())?;
        let region = pd.register(vec![0; size * TRANSFER], Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: 3 * entries, max_recv_wr: entries, ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        for number in 0..u64::from(request.size) {
            qp.post_recv_blocks(number, capsules.take().expect("a capsule"))?;
        }
        cq.arm()?;
        let moving = (0..size).map(|_| None).collect();
        Ok(Connection {
            qp,
            cq,
            responses,
            region,
            request,
            size: request.size,
            sq_head: 0,
            keeps_head: false,
            cntlid: 0,
            moving,
            held: VecDeque::new(),
            keys: BTreeMap::new(),
            event: None,
        })
    }

    /// Does what there is to do. An error ends the connection.
    pub(crate) fn turn(&mut self, disk: &mut Disk) -> Result<(), Errno> {
        self.keeps_head = disk.keeps_heads;
        let mut batch = [Completion::default(); 8];
        loop {
            let polled = self.cq.poll_or_arm(&mut batch)?;
            if polled == 0 {
                break;
            }
            for completion in batch.iter().take(polled) {
                if !completion.is_success() {
                    return Err(Errno::EIO);
                }
                self.take(completion, disk)?;
            }
        }
        for (turns, _) in &mut self.held {
            *turns = turns.saturating_sub(1);
        }
        while let Some(at) = self.held.iter().position(|(turns, _)| *turns == 0) {
            let (_, cqe) = self.held.remove(at).expect("an answer");
            self.send(cqe)?;
        }
        if disk.event != 0 && self.request.qid == 0 {
            if let Some(cid) = self.event.take() {
                let result = std::mem::take(&mut disk.event).into();
                self.answer(cid, Status::SUCCESS, result)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, completion: &Completion, disk: &mut Disk) -> Result<(), Errno> {
        let parts = self.qp.reclaim(completion);
        if completion.wr_id >= DATA {
            let slot = (completion.wr_id - DATA) as usize;
            let Some(Moving { entry, reads }) = self.moving[slot].take() else { return Ok(()) };
            if reads {
                let mut data = vec![0; length(&entry)];
                self.region.read(slot * TRANSFER, &mut data)?;
                self.execute(&entry, &data, disk)?;
            }
            return Ok(());
        }
        if completion.opcode != WcOpcode::RECV {
            return Ok(());
        }
        let parts = parts.ok_or(Errno::EIO)?;
        let capsule = parts[0][..completion.byte_len as usize].to_vec();
        self.qp.post_recv_blocks(completion.wr_id, parts)?;
        let entry = Sqe::decode(&capsule).expect("the initiator's command");
        if let Sgl::Keyed { key, invalidates: true, .. } = entry.sgl {
            self.keys.extend((!disk.keeps_keys).then_some((entry.cid, key)));
            disk.invalidated += u32::from(!disk.keeps_keys);
        }
        match entry.sgl {
            Sgl::Keyed { addr, len, key, .. } if is_write(&entry) => {
                // The data is here only after the completion of the read.
                let slot = self.moving.iter().position(Option::is_none).expect("a slot");
                let range = slot * TRANSFER..slot * TRANSFER + len as usize;
                let remote = Remote { addr, rkey: key };
                self.qp.post_send(SendWr::read(DATA + slot as u64, self.region.sge(range), remote))?;
                self.moving[slot] = Some(Moving { entry, reads: true });
                Ok(())
            }
            Sgl::Nothing | Sgl::Keyed { .. } | Sgl::InCapsule { .. } => {
                self.execute(&entry, &capsule[Sqe::LEN..], disk)
            }
        }
    }

    /// Executes a command whose data is here.
    fn execute(&mut self, entry: &Sqe, data: &[u8], disk: &mut Disk) -> Result<(), Errno> {
        let cid = entry.cid;
        match (self.request.qid, entry.opcode, entry.nsid & 0xff) {
            (_, 0x7f, 1) => {
                let connect = ConnectData::decode(data);
                let is_right = connect.subsystem == "nqn.test" && (entry.cdw[0] >> 16) as u16 == self.request.qid;
                if !is_right || (self.request.qid > 0 && !disk.enabled.contains(&connect.cntlid)) {
                    return self.answer(cid, Status::CONNECT_INVALID_PARAMETERS, 0);
                }
                self.size = entry.cdw[1] as u16 + 1;
                self.cntlid = if self.request.qid > 0 { connect.cntlid } else { disk.controllers };
                disk.controllers += u16::from(self.request.qid == 0);
                self.answer(cid, Status::SUCCESS, self.cntlid.into())
            }
            (0, 0x7f, 0) => {
                if entry.cdw[2] & 1 != 0 {
                    disk.enabled.push(self.cntlid);
                }
                self.answer(cid, Status::SUCCESS, 0)
            }
            (0, 0x7f, 4) if entry.cdw[1] == 0 => self.answer(cid, Status::SUCCESS, 0x1e << 24 | 127),
            (0, 0x7f, 4) => self.answer(cid, Status::SUCCESS, disk.enabled.contains(&self.cntlid).into()),
            (0, 0x06, _) => {
                let mut page = vec![0; 4096];
                match entry.cdw[0] {
                    0 => {
                        page[0] = BLOCKS as u8;
                        page[130] = 9;
                    }
                    _ => {
                        page[77] = disk.mdts;
                        page[93] = 1;
                        page[538] = 1 << 4;
                        let capsule = ((Sqe::LEN + IN_CAPSULE) / 16) as u32;
                        page[1792..1796].copy_from_slice(&capsule.to_le_bytes());
                    }
                }
                self.answer_with(entry, &page, disk)
            }
            (0, 0x02, _) => self.answer_with(entry, &vec![0; length(entry)], disk),
            (0, 0x09, _) => self.answer(cid, Status::SUCCESS, u64::from(entry.cdw[1])),
            (0, 0x0c, _) => {
                self.event = Some(cid);
                Ok(())
            }
            (0, 0x18, _) => {
                disk.keep_alives += 1;
                self.answer(cid, Status::SUCCESS, 0)
            }
            (1.., 0, _) => {
                disk.flushes += 1;
                self.answer(cid, Status::SUCCESS, 0)
            }
            (1.., 1 | 2, _) => self.io(entry, data, disk),
            (_, opcode, _) => panic!("the command {opcode:#x}"),
        }
    }

    fn io(&mut self, entry: &Sqe, data: &[u8], disk: &mut Disk) -> Result<(), Errno> {
        let (lba, count) = (entry.cdw[0] as usize, (entry.cdw[2] & 0xffff) as usize + 1);
        if lba + count > BLOCKS {
            return self.answer(entry.cid, Status::LBA_OUT_OF_RANGE, 0);
        }
        if disk.status != 0 {
            disk.refused += 1;
            // As nvmet with a command that it refuses before it looks at the memory.
            self.keys.remove(&entry.cid);
            return self.answer(entry.cid, Status(disk.status), 0);
        }
        assert_eq!(length(entry), count * BLOCK);
        let range = lba * BLOCK..(lba + count) * BLOCK;
        if entry.opcode == 2 {
            let data = disk.bytes[range].to_vec();
            return self.answer_with(entry, &data, disk);
        }
        for (number, block) in data.chunks(BLOCK).enumerate() {
            let first = block[..8].try_into().expect("eight bytes");
            disk.written.push(((lba + number) as u64, u64::from_le_bytes(first)));
        }
        disk.bytes[range].copy_from_slice(data);
        let cqe = self.completion(entry.cid, Status::SUCCESS, 0);
        self.hold(cqe, disk)
    }

    /// Writes data into the initiator's memory, and answers.
    fn answer_with(&mut self, entry: &Sqe, data: &[u8], disk: &mut Disk) -> Result<(), Errno> {
        let Sgl::Keyed { addr, len, key, .. } = entry.sgl else { panic!("no memory for {} bytes", data.len()) };
        assert_eq!(len as usize, data.len());
        let slot = self.moving.iter().position(Option::is_none).expect("a slot");
        let offset = slot * TRANSFER;
        self.region.write(offset, data)?;
        let remote = Remote { addr, rkey: key };
        let sge = self.region.sge(offset..offset + data.len());
        self.qp.post_send(SendWr::write(DATA + slot as u64, sge, remote))?;
        self.moving[slot] = Some(Moving { entry: *entry, reads: false });
        let cqe = self.completion(entry.cid, Status::SUCCESS, 0);
        // The answer comes after the data.
        if self.request.qid > 0 { self.hold(cqe, disk) } else { self.send(cqe) }
    }

    fn hold(&mut self, cqe: Cqe, disk: &mut Disk) -> Result<(), Errno> {
        if let Some(wrong) = disk.wrong.take() {
            return self.send_wrongly(cqe, wrong, disk);
        }
        if disk.delay == 0 {
            return self.send(cqe);
        }
        // Later ones overtake it.
        self.held.push_back((1 + u32::from(cqe.cid) % disk.delay, cqe));
        Ok(())
    }

    fn send_wrongly(&mut self, cqe: Cqe, wrong: Wrong, disk: &mut Disk) -> Result<(), Errno> {
        let other = self.keys.iter().find_map(|(&cid, &key)| (cid != cqe.cid).then_some(key));
        if let (Wrong::OtherKey, None) = (wrong, other) {
            // The next command has another one.
            disk.wrong = Some(wrong);
            self.held.push_back((100, cqe));
            return Ok(());
        }
        let key = self.keys.remove(&cqe.cid);
        match wrong {
            Wrong::Length(len) => self.send_bytes(cqe, len, key),
            Wrong::Identifier(bits) => self.send_bytes(Cqe { cid: cqe.cid ^ bits, ..cqe }, Cqe::LEN, key),
            Wrong::Head(sq_head) => self.send_bytes(Cqe { sq_head, ..cqe }, Cqe::LEN, key),
            Wrong::Twice => {
                self.send_bytes(cqe, Cqe::LEN, key)?;
                self.send_bytes(cqe, Cqe::LEN, None)
            }
            Wrong::Key => self.send_bytes(cqe, Cqe::LEN, Some(0x1234_5678)),
            Wrong::OtherKey => self.send_bytes(cqe, Cqe::LEN, other),
        }
    }

    fn answer(&mut self, cid: u16, status: Status, result: u64) -> Result<(), Errno> {
        let cqe = self.completion(cid, status, result);
        self.send(cqe)
    }

    fn completion(&mut self, cid: u16, status: Status, result: u64) -> Cqe {
        self.sq_head = (self.sq_head + u16::from(!self.keeps_head)) % self.size;
        Cqe { result, sq_head: self.sq_head, cid, status }
    }

    fn send(&mut self, cqe: Cqe) -> Result<(), Errno> {
        let key = self.keys.remove(&cqe.cid);
        self.send_bytes(cqe, Cqe::LEN, key)
    }

    fn send_bytes(&mut self, cqe: Cqe, len: usize, key: Option<u32>) -> Result<(), Errno> {
        let mut block = self.responses.take().ok_or(Errno::ENOMEM)?;
        block[..Cqe::LEN].copy_from_slice(&cqe.encode());
        let send = match key {
            Some(key) => SendWr::send_invalidate(0, block.part(0..len), key),
            None => SendWr::send(0, block.part(0..len)),
        };
        Ok(self.qp.post_send_blocks(send)?)
    }
}

fn is_write(entry: &Sqe) -> bool {
    entry.opcode == 1 || (entry.opcode == 0x7f && entry.nsid & 0xff == 1)
}

fn length(entry: &Sqe) -> usize {
    match entry.sgl {
        Sgl::Nothing => 0,
        Sgl::Keyed { len, .. } | Sgl::InCapsule { len } => len as usize,
    }
}
