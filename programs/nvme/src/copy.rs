//! Reads and writes of any length, in commands of the longest that the controller takes, several at a time.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_mio::verbs::Verbs;
use cmid_nvme::initiator::{BufferOf, On, Ticket};
use cmid_nvme::wire::{self, IdNamespace};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Blocks;
use crate::session::Session;

/// The commands at a time.
pub(crate) const DEPTH: usize = 16;

/// A copy from this length on shows its progress, in bytes.
const LONG: u64 = 4 << 20;

fn progress(len: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() || len.is_some_and(|len| len < LONG) {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    let bar = len.map_or_else(ProgressBar::no_length, ProgressBar::new);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

/// The blocks of each command.
fn blocks_of_command(session: &Session, id: &IdNamespace) -> Result<u64> {
    let blocks = session.initiator.transfer_max() / id.block();
    ensure!(blocks > 0, "a block of {} bytes is longer than --max-transfer", id.block());
    Ok((blocks as u64).min(u16::MAX.into()))
}

/// Reads blocks, and writes them to a file in their order.
pub(crate) fn read(session: &mut Session, nsid: u32, range: &Blocks, size: Option<u64>) -> Result<()> {
    let id = session.namespace(nsid)?;
    let block = id.block() as u64;
    let Some(available) = id.size.checked_sub(range.start_block) else {
        bail!("the namespace has {} blocks", id.size);
    };
    let size = size.unwrap_or(available.saturating_mul(block));
    ensure!(size % block == 0, "--data-size {size} is not a multiple of the block of {block} bytes");
    ensure!(size / block <= available, "there are {available} blocks from {} on", range.start_block);
    let name = || range.data.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string());
    let mut to: Box<dyn Write> = match &range.data {
        Some(path) => Box::new(File::create(path).with_context(name)?),
        None => Box::new(io::stdout()),
    };
    let (step, bar) = (blocks_of_command(session, &id)?, progress(Some(size)));
    let (mut lba, end) = (range.start_block, range.start_block + size / block);
    let mut pending = BTreeMap::<Ticket, Option<BufferOf<Verbs>>>::new();
    while lba < end || !pending.is_empty() {
        while lba < end && pending.len() < DEPTH {
            let count = step.min(end - lba);
            let buffer = session.initiator.buffer((count * block) as usize);
            let command = wire::read(nsid, lba, count as u16, buffer);
            // At most DEPTH wait.
            let Ok(ticket) = session.initiator.submit(On::Io, command) else { break };
            pending.insert(ticket, None);
            lba += count;
        }
        let ended = session.wait()?;
        pending.insert(ended.ticket, ended.into_data().context("read")?);
        while let Some(entry) = pending.first_entry().filter(|entry| entry.get().is_some()) {
            let Some(data) = entry.remove() else { continue };
            to.write_all(&data).with_context(name)?;
            bar.inc(data.len() as u64);
        }
    }
    to.flush().with_context(name)?;
    bar.finish_and_clear();
    Ok(())
}

/// Writes a file to blocks, and flushes them.
pub(crate) fn write(session: &mut Session, nsid: u32, range: &Blocks) -> Result<()> {
    let id = session.namespace(nsid)?;
    let block = id.block() as u64;
    // Returns the blocks of so many bytes.
    let count = |lba: u64, len: u64| {
        ensure!(len % block == 0, "the data is not a multiple of the block of {block} bytes");
        ensure!(lba.saturating_add(len / block) <= id.size, "the namespace has only {} blocks", id.size);
        Ok(len / block)
    };
    let name = || range.data.as_ref().map_or("standard input".to_owned(), |path| path.display().to_string());
    let (mut from, len) = source(range.data.as_deref()).with_context(name)?;
    // If the length is known, before anything is written.
    count(range.start_block, len.unwrap_or_default())?;
    let (step, bar) = (blocks_of_command(session, &id)?, progress(len));
    let (mut lba, mut outstanding, mut is_over) = (range.start_block, 0, false);
    while !is_over || outstanding > 0 {
        while !is_over && outstanding < DEPTH {
            let mut data = session.initiator.buffer((step * block) as usize);
            let read = fill(&mut from, &mut data).with_context(name)?;
            is_over = read == 0;
            if is_over {
                break;
            }
            data.truncate(read);
            let blocks = count(lba, read as u64)?;
            let Ok(_) = session.initiator.submit(On::Io, wire::write(nsid, lba, blocks as u16, data)) else {
                bail!("too many commands wait");
            };
            (lba, outstanding) = (lba + blocks, outstanding + 1);
        }
        if outstanding > 0 {
            let ended = session.wait()?;
            ended.result.context("write")?;
            outstanding -= 1;
            bar.inc(ended.command.transfer.buffer().map_or(0, |data| data.len()) as u64);
        }
    }
    session.run("flush", On::Io, wire::flush(nsid))?;
    bar.finish_and_clear();
    Ok(())
}

/// Reads until the buffer is full or the file has ended, and returns the number of bytes.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(room) = into.get_mut(len..).filter(|room| !room.is_empty()) {
        match from.read(room) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Opens the source, with its length if it is known.
fn source(path: Option<&Path>) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    let Some(path) = path else { return Ok((Box::new(io::stdin()), None)) };
    let file = File::open(path)?;
    let len = file.metadata().ok().filter(Metadata::is_file).map(|it| it.len());
    Ok((Box::new(file), len))
}
