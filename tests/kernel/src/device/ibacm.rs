//! Devices beside an ibacm that does not answer.
//!
//! `device ibacm` is a process of its own, because librdmacm looks for ibacm once. It listens on ibacm's socket, and
//! answers nothing.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cmid_verbs::{Backend, OpenError, Verbs};

use crate::env::{Pair, backend};

const SOCKET: &str = "/run/ibacm.sock";
/// The time limit of what does not wait for ibacm, on an emulated machine. The libraries load their providers in it.
const SOON: Duration = Duration::from_secs(3);

/// The number of connections to ibacm.
static ASKED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn silent() {
    start();
    match backend() {
        Backend::Librdmacm => refused(),
        Backend::Kernel => never_contacted(),
        other => panic!("{other}"),
    }
    fs::remove_file(SOCKET).expect("the socket goes");
}

/// Answers requests until the process is killed: an ibacm that knows no path.
pub(crate) fn stand_in() {
    let daemon = UnixListener::bind(SOCKET).expect("nobody else has ibacm's socket");
    daemon.incoming().for_each(|client| serve(client.expect("a connection")));
}

/// Starts an ibacm that does not answer.
fn start() {
    let daemon = UnixListener::bind(SOCKET).expect("nobody else has ibacm's socket");
    thread::spawn(move || {
        let mut clients = Vec::new();
        while let Ok(client) = daemon.accept() {
            ASKED.fetch_add(1, Ordering::SeqCst);
            // It stays open.
            clients.push(client);
        }
    });
}

/// librdmacm is refused. The default backend works, and librdmacm works once ibacm is gone.
fn refused() {
    let from = Instant::now();
    let error = Verbs::open_with(Backend::Librdmacm).expect_err("it is refused");
    assert!(from.elapsed() < SOON, "{:?}", from.elapsed());
    assert_eq!(error, OpenError::WaitsForIbacm(SOCKET.into()));
    assert_eq!(Verbs::open().expect("the default").backend(), Backend::Kernel);
    println!("ok  ibacm is silent: {error}");

    fs::remove_file(SOCKET).expect("the socket goes");
    drop(Pair::connected());
    start();
    connected_soon();
    println!("ok  ibacm starts after the first device: it is not asked");
}

/// The kernel backend makes connections while ibacm is silent.
fn never_contacted() {
    connected_soon();
    println!("ok  ibacm is silent: it is not asked");
}

fn connected_soon() {
    let from = Instant::now();
    drop(Pair::connected());
    println!("    a connection takes {:?}", from.elapsed());
    assert!(from.elapsed() < SOON);
    assert_eq!(ASKED.load(Ordering::SeqCst), 0);
}

/// Reads requests, and answers "no path" to each.
fn serve(mut client: UnixStream) {
    thread::spawn(move || {
        let mut request = [0; 4096];
        while let Ok(len @ 16..) = client.read(&mut request) {
            // The status, which is the third byte (struct acm_hdr): ENODATA.
            request[2] = 1;
            if client.write_all(&request[..len]).is_err() {
                return;
            }
        }
    });
}
