//! Commands by their names: what each has in its words, and how its data goes.

use super::Sqe;
use super::bytes::{array, put, text_at, u16_at};

/// The data of a command, in memory of the type `B`. The driver chooses between a keyed block and the capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer<B = Vec<u8>> {
    /// There is none.
    Nothing,
    /// These bytes go to the controller.
    Out(B),
    /// Bytes from the controller replace these. A buffer that is used again costs no page faults.
    In(B),
}

impl<B> Transfer<B> {
    /// Returns the memory of the data, if there is some.
    #[must_use]
    pub fn buffer(&self) -> Option<&B> {
        match self {
            Transfer::Nothing => None,
            Transfer::Out(buffer) | Transfer::In(buffer) => Some(buffer),
        }
    }

    /// Returns the memory of the data, to change it.
    #[must_use]
    pub fn buffer_mut(&mut self) -> Option<&mut B> {
        match self {
            Transfer::Nothing => None,
            Transfer::Out(buffer) | Transfer::In(buffer) => Some(buffer),
        }
    }
}

/// A command without an identifier and a data pointer, which belong to the queue that it is sent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<B = Vec<u8>> {
    /// The entry.
    pub entry: Sqe,
    /// The data.
    pub transfer: Transfer<B>,
}

impl<B> Command<B> {
    /// Returns the same command with its data in other memory.
    #[must_use]
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Command<C> {
        let transfer = match self.transfer {
            Transfer::Nothing => Transfer::Nothing,
            Transfer::Out(buffer) => Transfer::Out(change(buffer)),
            Transfer::In(buffer) => Transfer::In(change(buffer)),
        };
        Command { entry: self.entry, transfer }
    }
}

/// The opcode of all commands of fabrics.
pub(crate) const FABRICS: u8 = 0x7f;

/// The bytes of what Identify returns.
const IDENTIFY_LEN: usize = 4096;

fn command<B>(opcode: u8, nsid: u32, cdw: [u32; 6], transfer: Transfer<B>) -> Command<B> {
    Command { entry: Sqe::new(opcode, nsid, cdw), transfer }
}

/// The queue that a Connect is for, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    /// The queue.
    pub qid: u16,
    /// The entries of the submission queue; the wire has one less (`SQSIZE`).
    pub size: u16,
    /// The keep-alive timeout in milliseconds; 0 for none. Only of the admin queue.
    pub kato: u32,
}

/// The data of a Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// The identifier of the host (`HOSTID`).
    pub host_id: [u8; 16],
    /// The controller; [`ConnectData::ANY`] on the admin queue.
    pub cntlid: u16,
    /// The NQN of the subsystem (`SUBNQN`).
    pub subsystem: String,
    /// The NQN of the host (`HOSTNQN`).
    pub host: String,
}

impl ConnectData {
    /// The target chooses the controller (the dynamic controller model).
    pub const ANY: u16 = 0xffff;

    /// The longest NQN, without the zero at its end.
    pub const NQN_MAX: usize = 223;

    /// Its length in bytes.
    pub const LEN: usize = 1024;

    /// Returns it as bytes. Of an NQN only [`ConnectData::NQN_MAX`] bytes are taken.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; ConnectData::LEN];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, 16, &self.cntlid.to_le_bytes());
        for (offset, nqn) in [(256, &self.subsystem), (512, &self.host)] {
            let nqn = nqn.as_bytes();
            put(&mut bytes, offset, nqn.get(..ConnectData::NQN_MAX).unwrap_or(nqn));
        }
        bytes
    }

    /// Reads it, as a target does.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        ConnectData {
            host_id: array(bytes, 0),
            cntlid: u16_at(bytes, 16),
            subsystem: text_at(bytes, 256, 256),
            host: text_at(bytes, 512, 256),
        }
    }
}

/// Connect: makes a connection a queue of a controller. The result is the number of the controller in bits 15:0.
#[must_use]
pub fn connect(to: ConnectTo, data: &ConnectData) -> Command {
    let ConnectTo { qid, size, kato } = to;
    let cdw = [u32::from(qid) << 16, size.saturating_sub(1).into(), kato, 0, 0, 0];
    command(FABRICS, 1, cdw, Transfer::Out(data.encode()))
}

/// A property of a controller, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Capabilities, 8 bytes.
    Cap = 0,
    /// Configuration, 4 bytes.
    Cc = 0x14,
    /// Status, 4 bytes.
    Csts = 0x1c,
}

/// Property Get. The result is the value.
#[must_use]
pub fn property_get(property: Property) -> Command {
    let size = u32::from(property == Property::Cap);
    command(FABRICS, 4, [size, property as u32, 0, 0, 0, 0], Transfer::Nothing)
}

/// Property Set, of a property of 4 bytes.
#[must_use]
pub fn property_set(property: Property, value: u32) -> Command {
    command(FABRICS, 0, [0, property as u32, value, 0, 0, 0], Transfer::Nothing)
}

fn identify(cns: u32, nsid: u32) -> Command {
    command(0x06, nsid, [cns, 0, 0, 0, 0, 0], Transfer::In(vec![0; IDENTIFY_LEN]))
}

/// Identify, of the controller: [`IdController`](super::IdController).
#[must_use]
pub fn identify_controller() -> Command {
    identify(1, 0)
}

/// Identify, of a namespace: [`IdNamespace`](super::IdNamespace).
#[must_use]
pub fn identify_namespace(nsid: u32) -> Command {
    identify(0, nsid)
}

/// Identify, the active namespaces above a number: [`namespace_list`](super::namespace_list).
#[must_use]
pub fn identify_namespaces(above: u32) -> Command {
    identify(2, above)
}

/// A feature, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The number of I/O queues: zero-based, of submission queues in bits 15:0, of completion queues above.
    Queues = 0x07,
    /// Which events are reported ([`async_event`]), as in `OAES`.
    AsyncEvents = 0x0b,
}

/// Set Features.
#[must_use]
pub fn set_features(feature: Feature, value: u32) -> Command {
    command(0x09, 0, [feature as u32, value, 0, 0, 0, 0], Transfer::Nothing)
}

/// A log page, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogPage(pub u8);

impl LogPage {
    /// What is there to connect to: [`DiscoveryLog`](super::DiscoveryLog).
    pub const DISCOVERY: LogPage = LogPage(0x70);
}

/// Get Log Page: `len` bytes from `offset` on, a multiple of 4 and at least 4. Ends the event that names the page.
#[must_use]
pub fn get_log_page(page: LogPage, offset: u64, len: u32) -> Command {
    let words = (len / 4).max(1);
    let (low, high) = ((words - 1) & 0xffff, (words - 1) >> 16);
    let cdw = [u32::from(page.0) | low << 16, high, offset as u32, (offset >> 32) as u32, 0, 0];
    command(0x02, u32::MAX, cdw, Transfer::In(vec![0; words as usize * 4]))
}

/// Asynchronous Event Request. It completes when something happens: [`AsyncEvent`](super::AsyncEvent).
#[must_use]
pub fn async_event() -> Command {
    command(0x0c, 0, [0; 6], Transfer::Nothing)
}

/// Keep Alive.
#[must_use]
pub fn keep_alive() -> Command {
    command(0x18, 0, [0; 6], Transfer::Nothing)
}

fn blocks<B>(opcode: u8, nsid: u32, lba: u64, blocks: u16, transfer: Transfer<B>) -> Command<B> {
    let cdw = [lba as u32, (lba >> 32) as u32, blocks.saturating_sub(1).into(), 0, 0, 0];
    command(opcode, nsid, cdw, transfer)
}

/// Read: `count` blocks from `lba` on, at least 1. `buffer` is as long as they are.
#[must_use]
pub fn read<B>(nsid: u32, lba: u64, count: u16, buffer: B) -> Command<B> {
    blocks(0x02, nsid, lba, count, Transfer::In(buffer))
}

/// Write: `count` blocks from `lba` on, at least 1. `data` are as many.
#[must_use]
pub fn write<B>(nsid: u32, lba: u64, count: u16, data: B) -> Command<B> {
    blocks(0x01, nsid, lba, count, Transfer::Out(data))
}

/// Flush: what was written to the namespace is on stable storage afterwards.
#[must_use]
pub fn flush(nsid: u32) -> Command {
    command(0x00, nsid, [0; 6], Transfer::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of `struct nvmf_connect_command` and `struct nvmf_connect_data` of the kernel.
    #[test]
    fn a_connect_has_the_fields_where_the_kernel_reads_them() {
        let data = ConnectData {
            host_id: [7; 16],
            cntlid: ConnectData::ANY,
            subsystem: "nqn.2014-08.org.example:a".into(),
            host: "nqn.2014-08.org.example:host".into(),
        };
        let Command { entry, transfer } = connect(ConnectTo { qid: 2, size: 32, kato: 5000 }, &data);
        let bytes = entry.encode();
        assert_eq!((bytes[0], bytes[4]), (0x7f, 1));
        assert_eq!(bytes[40..52], [0, 0, 2, 0, 31, 0, 0, 0, 0x88, 0x13, 0, 0]);
        let Transfer::Out(bytes) = transfer else { panic!("no data") };
        assert_eq!((bytes.len(), bytes[16], bytes[17]), (1024, 0xff, 0xff));
        assert_eq!(&bytes[256..259], b"nqn");
        assert_eq!(ConnectData::decode(&bytes), data);
    }

    #[test]
    fn an_nqn_that_is_too_long_stays_in_its_field() {
        let nqn = "n".repeat(400);
        let data = ConnectData { host_id: [0; 16], cntlid: 1, subsystem: nqn, host: "h".into() };
        let read = ConnectData::decode(&data.encode());
        assert_eq!((read.subsystem.len(), read.host.as_str()), (ConnectData::NQN_MAX, "h"));
    }

    #[test]
    fn numbers_of_blocks_and_words_are_zero_based() {
        let entry = read(3, 0x1_0000_0002, 8, vec![0; 4096]).entry;
        assert_eq!((entry.opcode, entry.nsid, entry.cdw), (2, 3, [2, 1, 7, 0, 0, 0]));
        let log = get_log_page(LogPage::DISCOVERY, 0, 0x8_0000);
        assert_eq!(
            (log.entry.cdw[0], log.entry.cdw[1], log.transfer.buffer().map(Vec::len)),
            (0xffff_0070, 1, Some(0x8_0000))
        );
        assert_eq!(property_get(Property::Cap).entry.cdw[..2], [1, 0]);
        assert_eq!(property_set(Property::Cc, 5).entry.cdw[..3], [0, 0x14, 5]);
    }
}
