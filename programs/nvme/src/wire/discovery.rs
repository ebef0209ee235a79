//! The discovery log: what there is to connect to.

use std::ops::Deref;

use super::WireError;
use super::bytes::{text_at, u8_at, u16_at, u64_at};

/// The header, and each entry after it, in bytes.
const PART: usize = 1024;

/// An entry of the discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// The transport: 1 for RDMA, 3 for TCP, 2 for Fibre Channel, 254 for the same host.
    pub transport: u8,
    /// The family of the address: 1 for IPv4, 2 for IPv6.
    pub family: u8,
    /// 1 and 3 for a discovery service, 2 for a subsystem with namespaces.
    pub kind: u8,
    /// The port of the subsystem.
    pub port_id: u16,
    /// The port number, as a text.
    pub service: String,
    /// The address, as a text.
    pub address: String,
    /// The NQN of the subsystem.
    pub subsystem: String,
}

impl DiscoveryEntry {
    fn decode(bytes: &[u8]) -> Self {
        DiscoveryEntry {
            transport: u8_at(bytes, 0),
            family: u8_at(bytes, 1),
            kind: u8_at(bytes, 2),
            port_id: u16_at(bytes, 4),
            service: text_at(bytes, 32, 32),
            subsystem: text_at(bytes, 256, 256),
            address: text_at(bytes, 512, 256),
        }
    }

    /// Returns the name of the transport, as nvme-cli has it.
    #[must_use]
    pub fn transport_name(&self) -> &'static str {
        match self.transport {
            1 => "rdma",
            2 => "fc",
            3 => "tcp",
            254 => "loop",
            _ => "unknown",
        }
    }

    /// Returns what it is, as nvme-cli tells it.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            1 => "discovery subsystem",
            2 => "nvme subsystem",
            3 => "current discovery subsystem",
            _ => "unknown",
        }
    }
}

/// The bytes of each part that is read of the log.
const PAGE: u32 = 4096;

/// How often a log is read that changes meanwhile.
const READS: u32 = 5;

/// The discovery log, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryLog {
    /// Its number: another one means that it has changed.
    pub generation: u64,
    /// The number of entries that the controller has.
    pub records: u64,
    /// The entries that were read.
    pub entries: Vec<DiscoveryEntry>,
}

impl DiscoveryLog {
    /// The most entries that are read: more is not plausible.
    pub const ENTRIES_MAX: u64 = 1024;

    /// The bytes of the header.
    pub const HEADER: u32 = PART as u32;

    /// Reads the header, and the entries behind it.
    ///
    /// # Errors
    /// [`WireError`] if the header is not complete, of another format, or tells more than
    /// [`DiscoveryLog::ENTRIES_MAX`] entries.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let what = "the discovery log";
        if bytes.len() < PART {
            return Err(WireError::Length { what, len: bytes.len(), expected: PART });
        }
        let (generation, records, format) = (u64_at(bytes, 0), u64_at(bytes, 8), u16_at(bytes, 16));
        if format != 0 {
            return Err(WireError::Field { what, field: "RECFMT", value: format.into() });
        }
        if records > DiscoveryLog::ENTRIES_MAX {
            return Err(WireError::Field { what, field: "NUMREC", value: records });
        }
        let entries = bytes.chunks_exact(PART).skip(1).take(records as usize).map(DiscoveryEntry::decode).collect();
        Ok(DiscoveryLog { generation, records, entries })
    }

    /// Reads the whole log: `page` reads some bytes of it, from an offset. Returns `None` if it changed each time
    /// meanwhile.
    ///
    /// # Errors
    /// That of `page`, or that of [`DiscoveryLog::decode`].
    pub fn read<B, E>(mut page: impl FnMut(u32, u32) -> Result<B, E>) -> Result<Option<Self>, E>
    where
        B: Deref<Target = [u8]>,
        E: From<WireError>,
    {
        for _ in 0..READS {
            let header = DiscoveryLog::decode(&page(0, DiscoveryLog::HEADER)?)?;
            let (mut bytes, len) = (Vec::new(), header.len());
            for offset in (0..len).step_by(PAGE as usize) {
                bytes.extend_from_slice(&page(offset, PAGE.min(len - offset))?);
            }
            let log = DiscoveryLog::decode(&bytes)?;
            // Only the first part has the generation: whether the log has changed behind it, the header tells.
            let after = DiscoveryLog::decode(&page(0, DiscoveryLog::HEADER)?)?;
            let same = |it: &DiscoveryLog| (it.generation, it.records) == (header.generation, header.records);
            if same(&log) && same(&after) {
                return Ok(Some(log));
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the whole log.
    #[must_use]
    pub fn len(&self) -> u32 {
        // At most 1025 KiB.
        (self.records.min(DiscoveryLog::ENTRIES_MAX) as u32 + 1) * DiscoveryLog::HEADER
    }

    /// Whether there is nothing to connect to.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::put;
    use super::*;

    /// Reads a log of eight entries, whose generation is the number of changes so far. `changes` says before which
    /// reads it does.
    fn read(changes: impl Fn(usize) -> bool) -> Option<DiscoveryLog> {
        let (mut reads, mut generation) = (0, 0);
        let page = |offset: u32, len: u32| {
            generation += u8::from(changes(reads));
            reads += 1;
            let mut log = vec![0; 9 * PART];
            put(&mut log, 0, &[generation]);
            put(&mut log, 8, &[8]);
            (1..9).for_each(|entry| put(&mut log, entry * PART + 256, &[b'0' + generation]));
            Ok::<_, WireError>(log[offset as usize..][..len as usize].to_vec())
        };
        DiscoveryLog::read(page).expect("a log")
    }

    #[test]
    fn a_log_that_changes_while_it_is_read_is_read_again() {
        // An attempt is the header, three parts, and the header.
        for change in 0..5 {
            let log = read(|read| read == change).expect("a second attempt");
            assert_eq!((log.generation, log.entries.len()), (1, 8));
            assert!(log.entries.iter().all(|entry| entry.subsystem == "1"), "{change}: {log:?}");
        }
        assert_eq!(read(|_| true), None);
    }

    #[test]
    fn a_log_has_the_entries_that_its_header_tells_and_that_were_read() {
        let mut bytes = vec![0; 3 * PART];
        put(&mut bytes, 0, &[4]);
        put(&mut bytes, 8, &[5]);
        put(&mut bytes, PART, &[1, 1, 2, 0, 1]);
        put(&mut bytes, PART + 32, b"4420    ");
        put(&mut bytes, PART + 256, b"nqn.test\0");
        put(&mut bytes, PART + 512, b"10.99.0.1 ");
        let log = DiscoveryLog::decode(&bytes).expect("a log");
        assert_eq!((log.generation, log.records, log.entries.len(), log.len()), (4, 5, 2, 6 * 1024));
        let entry = &log.entries[0];
        assert_eq!((entry.transport_name(), entry.kind_name()), ("rdma", "nvme subsystem"));
        assert_eq!((&*entry.service, &*entry.subsystem, &*entry.address), ("4420", "nqn.test", "10.99.0.1"));
    }

    #[test]
    fn a_log_of_too_many_entries_is_refused() {
        let mut bytes = vec![0xff; PART];
        put(&mut bytes, 16, &[0, 0]);
        assert!(DiscoveryLog::decode(&bytes).is_err_and(|error| error.to_string().starts_with("NUMREC")));
        assert!(DiscoveryLog::decode(&bytes[1..]).is_err());
    }
}
