//! The log on the disk: a database of redb, which a separate thread writes.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, ensure};
use mio::Waker;
use redb::{Database, ReadableTable as _, TableDefinition};

use crate::protocol::{Ballot, Batch, Record, ReplicaId};

/// The records, by index.
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// The ballot: the term, and the vote if there is one.
const BALLOT: TableDefinition<'_, (), (u64, Option<u64>)> = TableDefinition::new("ballot");

/// The number of the replica.
const REPLICA: TableDefinition<'_, (), u64> = TableDefinition::new("replica");

/// The thread that stores batches.
#[derive(Debug)]
pub struct Store {
    batches: Option<Sender<Batch>>,
    stored: Receiver<Result<u64>>,
    thread: Option<JoinHandle<()>>,
}

/// The contents of a store at its start.
#[derive(Debug, Default)]
pub struct Saved {
    /// The ballot.
    pub ballot: Ballot,
    /// The records, from index 1 on.
    pub records: Vec<Record>,
}

impl Store {
    /// Opens the database of a replica in a folder, or creates it. `waker` ends the poll of the loop when a batch is stored.
    ///
    /// # Errors
    /// The error text is one line with a remedy.
    pub fn open(folder: &Path, id: ReplicaId, waker: Waker) -> Result<(Self, Saved)> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}: select another --folder", folder.display()))?;
        let path = folder.join("log.redb");
        if !path.exists() {
            create(folder, &path).map_err(|error| explain(error, folder))?;
        }
        let database = Database::open(&path).map_err(|error| explain(error.into(), folder))?;
        let owner = claim(&database, id).map_err(|error| explain(error, folder))?;
        let other = || format!("{} is of replica {owner}: give --id {owner}, or another --folder", folder.display());
        ensure!(owner == id, other());
        let saved = load(&database).map_err(|error| explain(error, folder))?;
        let ((batches, to_store), (done, stored)) = (channel::<Batch>(), channel());
        let folder = folder.to_owned();
        let thread = thread::Builder::new().name("store".into()).spawn(move || {
            while let Ok(first) = to_store.recv() {
                // All waiting batches are one transaction with one flush.
                let batches: Vec<_> = std::iter::once(first).chain(to_store.try_iter()).collect();
                let last = batches.last().map_or(0, |batch| batch.number);
                let result = store(&database, &batches).map(|()| last).map_err(|error| explain(error, &folder));
                let failed = result.is_err();
                if done.send(result).is_err() || waker.wake().is_err() || failed {
                    break;
                }
            }
        })?;
        Ok((Store { batches: Some(batches), stored, thread: Some(thread) }, saved))
    }

    /// Stores a batch later. The result is one of [`Store::stored`].
    pub fn store(&self, batch: Batch) {
        // If the thread has ended, its error is in `stored`.
        if let Some(batches) = &self.batches {
            let _ = batches.send(batch);
        }
    }

    /// Returns the number of the last batch of the next transaction that has ended. All earlier batches are stored too.
    /// `None` if no transaction has ended since the last call.
    ///
    /// # Errors
    /// The error text is one line with a remedy, for example for a full disk. No later batch is stored.
    pub fn stored(&self) -> Result<Option<u64>> {
        match self.stored.try_recv() {
            Ok(result) => result.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            // A leader that stores nothing would lead on.
            Err(TryRecvError::Disconnected) => Err(anyhow!("the thread of the log has ended: start the replica again")),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The thread ends when its queue is closed, and closes the database.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn explain(error: redb::Error, folder: &Path) -> anyhow::Error {
    let folder = folder.display();
    if let redb::Error::DatabaseAlreadyOpen = error {
        return anyhow!("{folder} is in use: stop the other replica, or select another --folder");
    }
    let kind = if let redb::Error::Io(error) = &error { Some(error.kind()) } else { None };
    if kind == Some(ErrorKind::StorageFull) {
        return anyhow!("the disk of {folder} is full: free space, and start the replica again");
    }
    if kind == Some(ErrorKind::PermissionDenied) {
        return anyhow!("no permission to write {folder}: select another --folder");
    }
    anyhow!("the database in {folder} fails: {error}")
}

/// Creates an empty database under its name at once: redb cannot open the file of a process that was killed while it
/// created the database. Such a process leaves a file with another name, which has no records.
#[allow(clippy::result_large_err, reason = "an error is the last thing that happens")]
fn create(folder: &Path, path: &Path) -> Result<(), redb::Error> {
    let file = tempfile::Builder::new().prefix("log.redb.").tempfile_in(folder)?;
    drop(Database::create(file.path())?);
    match file.persist_noclobber(path) {
        // Another replica was faster: the caller meets its lock.
        Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => {}
        persisted => drop(persisted.map_err(|failed| failed.error)?),
    }
    // A vote that is stored must not go with the name of its file.
    Ok(File::open(folder)?.sync_all()?)
}

/// Returns the replica that the database belongs to: this one if it is new. Two replicas with one vote could elect two leaders.
#[allow(clippy::result_large_err, reason = "an error is the last thing that happens")]
fn claim(database: &Database, id: ReplicaId) -> Result<ReplicaId, redb::Error> {
    let transaction = database.begin_write()?;
    let stored = transaction.open_table(REPLICA)?.get(())?.map(|owner| owner.value() as usize);
    if stored.is_none() {
        transaction.open_table(REPLICA)?.insert((), id as u64)?;
    }
    transaction.commit()?;
    Ok(stored.unwrap_or(id))
}

#[allow(clippy::result_large_err, reason = "an error is the last thing that happens")]
fn load(database: &Database) -> Result<Saved, redb::Error> {
    // Creates the tables.
    let transaction = database.begin_write()?;
    transaction.open_table(LOG)?;
    transaction.open_table(BALLOT)?;
    transaction.commit()?;
    let transaction = database.begin_read()?;
    let (term, vote) = transaction.open_table(BALLOT)?.get(())?.map_or((0, None), |ballot| ballot.value());
    let mut records = Vec::new();
    for entry in transaction.open_table(LOG)?.iter()? {
        let (_, bytes) = entry?;
        let record = Record::decode(bytes.value()).map_err(|error| redb::Error::Corrupted(error.to_string()))?;
        records.push(record);
    }
    Ok(Saved { ballot: Ballot { term, vote: vote.map(|vote| vote as usize) }, records })
}

/// Stores batches as one transaction.
#[allow(clippy::result_large_err, reason = "an error is the last thing that happens")]
fn store(database: &Database, batches: &[Batch]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut ballots = transaction.open_table(BALLOT)?;
        let mut log = transaction.open_table(LOG)?;
        let mut bytes = Vec::new();
        for Batch { ballot, from, records, .. } in batches {
            if let Some(Ballot { term, vote }) = ballot {
                ballots.insert((), (*term, vote.map(|vote| vote as u64)))?;
            }
            if !records.is_empty() {
                log.retain_in(*from.., |_, _| false)?;
            }
            for (index, record) in (*from..).zip(records) {
                bytes.clear();
                record.encode(&mut bytes);
                log.insert(index, bytes.as_slice())?;
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_panicked_ends_the_replica() {
        let (_, stored) = channel();
        let store = Store { batches: None, stored, thread: None };
        assert!(store.stored().is_err_and(|error| error.to_string().contains("start the replica again")));
    }

    #[test]
    fn a_full_disk_is_explained() {
        let full = redb::Error::Io(std::io::Error::from(ErrorKind::StorageFull));
        let said = explain(full, Path::new("/data")).to_string();
        assert_eq!(said, "the disk of /data is full: free space, and start the replica again");
    }
}
