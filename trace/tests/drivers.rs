//! Records each driver of the project to files, and replays the files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cmid_blocking::{Connection, ListenOptions, Listener, Options};
use cmid_epoll::Epoll;
use cmid_mio::Mio;
use cmid_proto::datapath::Attaching;
use cmid_proto::datapath::{CreateError, DataPath};
use cmid_proto::{Acks, CmEvent, Device, Drive, IdKey, Limits, Observer, Poller, PortSpace};
use cmid_sim::{Caps, Clock, Config, Fabric, Host, Qp, SimDevice};
use cmid_trace::{Files, Recording, Trace, TraceSink as _, replay};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

fn host() -> (Host, SocketAddr) {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    (fabric.host(&["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()]), "10.0.0.2:7471".parse().unwrap())
}

/// A file name in a temporary folder, which is removed with the test.
fn place(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

/// Replays `files` files of this name; returns the steps of all of them.
fn replayed(path: &Path, files: usize) -> Vec<String> {
    let name = |number: usize| match number {
        1 => path.to_owned(),
        _ => PathBuf::from(format!("{}.{number}", path.display())),
    };
    let read = |path: PathBuf| Recording::read(BufReader::new(File::open(path).unwrap())).unwrap();
    let recordings: Vec<_> = (1..=files).map(name).map(read).collect();
    assert!(!name(files + 1).exists(), "there are more files");
    assert!(recordings.iter().all(Recording::is_whole));
    let mut steps = Vec::new();
    replay(&recordings, |_, step| steps.push(step.to_string())).unwrap();
    steps
}

fn resolve<D: Device, P: Poller<D>, O: Observer>(
    drive: &mut Drive<D, P, O>,
    there: SocketAddr,
) -> (cmid_proto::ChannelKey, IdKey) {
    let channel = drive.open_channel(Acks::Explicit).unwrap();
    let id = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
    let deadline = drive.within(SOON);
    drive.resolve_addr(id, None, there, deadline).unwrap();
    (channel, id)
}

fn is_resolved<D: Device, P: Poller<D>, O: Observer>(drive: &mut Drive<D, P, O>, on: cmid_proto::ChannelKey) -> bool {
    let Some(event) = drive.next_event(on) else { return false };
    assert_eq!(event.cm(), Some(CmEvent::AddrResolved));
    drive.ack(event.ack_token.unwrap()).unwrap();
    true
}

fn has(steps: &[String], parts: &[&str]) {
    for part in parts {
        assert!(steps.iter().any(|step| step.contains(part)), "no {part:?} in\n{}", steps.join("\n"));
    }
}

/// A step without core numbers, which differ for each driver of the process.
fn unnumbered(step: &str) -> String {
    let words = step.split(' ').map(|word| match word.split_once('/') {
        Some((number, key)) if number.trim_start_matches(['[', 's']).parse::<u16>().is_ok() => key,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn epoll() {
    let ((host, there), (_folder, path)) = (host(), place("epoll"));
    let files = Arc::new(Files::at(&path));
    let limits = Limits { core: Some(5), ..Limits::SINGLE };
    let config = cmid_epoll::Config { limits, ..Default::default() };
    let mut epoll = Epoll::observed(host.device(), config, Trace::new(files.clone()).unwrap()).unwrap();
    let (channel, _) = resolve(epoll.drive(), there);
    let end = Instant::now() + SOON;
    while !is_resolved(epoll.drive(), channel) {
        assert!(Instant::now() < end, "no address");
        epoll.wait(Some(SOON)).unwrap();
    }
    assert!(epoll.drive().observer().error().is_none());
    // The trace of a program that crashes here is readable up to this step.
    let so_far = Recording::read(BufReader::new(File::open(&path).unwrap())).unwrap();
    assert!(!so_far.is_whole());
    replay(&[so_far], |_, _| {}).unwrap();
    drop(epoll);
    files.check().unwrap();
    let expected = ["event s5/id0: ADDR_RESOLVED", "ADDR_RESOLVED on s5/id0", "ack of s5/id0", "[s5/id0: - -> idle]"];
    has(&replayed(&path, 1), &expected);
}

/// A trace contains the private data of the peers.
#[test]
fn only_the_owner_may_read_the_files() {
    let (_folder, path) = place("mode");
    // A file of an earlier run, which everybody may read.
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let files = Files::at(&path);
    drop([files.next().unwrap(), files.next().unwrap()]);
    let second = path.with_file_name(format!("{}.2", path.file_name().unwrap().to_str().unwrap()));
    for name in [&path, &second] {
        let there = std::fs::metadata(name).unwrap();
        assert_eq!((there.permissions().mode() & 0o7777, there.len()), (0o600, 0), "{}", name.display());
    }
}

#[test]
fn mio() {
    let ((host, there), (_folder, path)) = (host(), place("mio"));
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(8);
    let trace = Trace::new(Arc::new(Files::at(&path))).unwrap();
    let config = cmid_mio::Config { limits: Limits { core: Some(0), ..Limits::SINGLE }, tokens: 0..4 };
    let mut driver = Mio::observed(host.device(), poll.registry(), config, trace).unwrap();
    let (channel, _) = resolve(driver.drive(), there);
    let end = Instant::now() + SOON;
    while !is_resolved(driver.drive(), channel) {
        assert!(Instant::now() < end, "no address");
        poll.poll(&mut events, driver.timeout(Some(SOON))).unwrap();
        for event in &events {
            assert!(driver.handle(event));
        }
        let _look = driver.turn();
    }
    drop(driver);
    has(&replayed(&path, 1), &["event id0: ADDR_RESOLVED", "ADDR_RESOLVED on id0", "ack of id0", "[id0: - -> idle]"]);
}

fn qp(device: &mut SimDevice, attaching: Attaching<'_>) -> Result<Qp, CreateError> {
    let (pd, cq) = (device.alloc_pd(attaching.id())?, device.create_cq(attaching.id(), 32)?);
    device.create_qp(attaching, &pd, &cq, &cq, Caps::default())
}

/// A listener passes each connection to a new driver on a new device.
#[test]
fn blocking() {
    let ((host, there), (_folder, path)) = (host(), place("blocking"));
    let files = Arc::new(Files::at(&path));
    let trace = || Trace::new(files.clone()).unwrap();
    let mut listener = Listener::observed(host.device(), trace(), there, &ListenOptions::default()).unwrap();
    let server = thread::spawn(move || {
        let (mut connection, _qp) = listener.accept(SOON).unwrap().accept(&Options::default(), qp).unwrap();
        connection.wait_closed(SOON).unwrap();
        connection.disconnect(SOON).unwrap();
    });
    let options = Options { private_data: b"hello", ..Options::default() };
    let (mut connection, _qp) = Connection::observed(host.device(), trace(), None, there, &options, qp).unwrap();
    connection.disconnect(SOON).unwrap();
    server.join().unwrap();
    drop(connection);
    let steps = replayed(&path, 3);
    let steps: Vec<_> = steps.iter().map(|step| unnumbered(step)).collect();
    has(
        &steps,
        &[
            "release id1, number",
            "adopt id0 on ch0, number",
            "event id1: CONNECT_REQUEST",
            "attach_qp on id0",
            "DISCONNECTED",
        ],
    );
}

/// The driver continues. The sink has the first error, and also that of a device without a stream.
#[test]
fn a_full_disk() {
    let ((host, there), (folder, path)) = (host(), place("full"));
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let files = Arc::new(Files::at(&path));
    let trace = Trace::new(files.clone()).unwrap();
    assert_eq!(trace.stream(), Some(0));
    files.check().unwrap();
    let mut drive = Drive::with(host.device(), (), trace, Limits::SINGLE);
    assert_eq!(drive.observer().error().unwrap().kind(), ErrorKind::StorageFull);
    resolve(&mut drive, there);
    drop(folder);
    let sibling = drive.observer().sibling();
    assert_eq!((sibling.stream(), sibling.error().unwrap().kind()), (None, ErrorKind::NotFound));
    drop(drive);
    let lost = files.check().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::StorageFull);
    assert!(lost.to_string().starts_with(&format!("{}: ", path.display())), "{lost}");
}
