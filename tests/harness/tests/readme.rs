//! The example of README.md where all does not go well: `attach` and `serve` are those of README.md.
#![allow(clippy::unwrap_used, reason = "a test")]

use cmid_blocking::{Connection, Listener, Options};
use cmid_harness::sim_host as host;
use cmid_proto::Errno;
use cmid_proto::datapath::{Access, Attaching, Completion, CreateError, QpParts, SendWr, prelude::*};
use cmid_sim::{Mr, SimDevice};
use std::net::SocketAddr;
use std::time::Instant;
use std::{thread, time::Duration};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

type Parts = (QpParts<SimDevice>, Mr);

fn attach(device: &mut SimDevice, to: Attaching<'_>) -> std::result::Result<Parts, CreateError> {
    let mut made = device.qp(to).attach()?;
    let mr = made.pd.register(b"hello".to_vec(), Access::LOCAL_WRITE)?;
    made.qp.post_recv(1, mr.sge(0..5))?;
    Ok((made, mr))
}

fn serve(mut listener: Listener<SimDevice>) -> Result<[u8; 5]> {
    let incoming = listener.accept(Duration::from_secs(5))?;
    let (mut connection, (mut made, mr)) = incoming.accept(&Options::default(), attach)?;
    let mut some = [Completion::default()];
    if connection.next_completions(&mut made.cq, &mut some, Duration::from_secs(5))? == 0 {
        return Err("the client left".into());
    }
    let mut bytes = [0; 5];
    mr.read(0, &mut bytes)?;
    Ok(bytes)
}

fn server() -> SocketAddr {
    "10.0.0.2:7471".parse().unwrap()
}

/// A client that connects, sends or not, and leaves. Returns what the server returns.
fn served(sends: bool) -> Result<[u8; 5]> {
    let host = host();
    let listener = Listener::bind(host.device(), server()).unwrap();
    let serving = thread::spawn(|| serve(listener));
    let (connection, (mut made, mr)) =
        Connection::connect(host.device(), server(), &Options::default(), attach).unwrap();
    if sends {
        made.qp.post_send(SendWr::send(2, mr.sge(0..5))).unwrap();
        while made.cq.poll_one().unwrap().is_none() {}
    }
    drop(connection);
    serving.join().unwrap()
}

/// The text of a function at the start of a line, up to its end.
fn function<'a>(text: &'a str, head: &str) -> &'a str {
    let from = text.find(&format!("\nfn {head}(")).unwrap_or_else(|| panic!("no {head}"));
    let rest = &text[from..];
    &rest[..rest.find("\n}\n").unwrap_or_else(|| panic!("no end of {head}"))]
}

#[test]
fn the_functions_are_those_of_the_readme() {
    let (readme, here) = (include_str!("../../../README.md"), include_str!("readme.rs"));
    // Lines are broken elsewhere there.
    let plain = |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")");
    for head in ["attach", "serve"] {
        assert_eq!(plain(function(readme, head)), plain(function(here, head)));
    }
}

#[test]
fn a_client_that_leaves_without_a_message_ends_the_server() {
    let begun = Instant::now();
    let error = served(false).unwrap_err();
    assert_eq!(error.to_string(), "the client left");
    assert!(begun.elapsed() < Duration::from_secs(5), "the event has ended the wait, and not its time limit");
}

#[test]
fn the_message_of_a_client_that_has_left_is_received() {
    assert_eq!(&served(true).unwrap(), b"hello");
}

#[test]
fn a_connect_that_nobody_listens_for_says_so() {
    let error = Connection::connect(host().device(), server(), &Options::default(), attach).err().unwrap();
    assert_eq!(error.errno(), Errno::ECONNREFUSED, "{error}");
    assert!(error.to_string().contains("REJECTED"), "{error}");
}
