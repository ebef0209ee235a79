//! Too few descriptors. The only test of its process, because it lowers the process's limit.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;

use cmid_tokio::proto::Errno;
use cmid_tokio::{Connection, Options};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::{World, attach, ends, server};

/// Permits this process at most `left` more descriptors.
fn permit(left: u64, before: Rlimit) {
    let lowest = u64::try_from(File::open("/dev/null").unwrap().as_raw_fd()).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest + left), ..before }).unwrap();
}

/// With one more descriptor each time, until an accept has enough.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_accepted_for_lack_of_descriptors_is_rejected_and_the_listener_goes_on() {
    let (world, before) = (World::paused(), getrlimit(Resource::Nofile));
    let mut listener = world.listener();
    let options = Options::default();
    for left in 0..20 {
        let device = world.client.device();
        let connect = Connection::connect(device, server(), &options, attach);
        let accept = async {
            // The client has its descriptors by then, and waits for the answer.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            permit(left, before);
            let incoming = listener.accept().await;
            setrlimit(Resource::Nofile, before).unwrap();
            incoming?.accept(&options, attach).await
        };
        let (connected, accepted) = ends(async { tokio::join!(connect, accept) }).await;
        if accepted.is_ok() {
            connected.unwrap();
            assert!(left > 0, "an accept needs a descriptor");
            return;
        }
        let error = accepted.err().unwrap();
        // Of the listener, or of a request that it has taken in.
        let kinds = [ErrorKind::ConnectionAborted, std::io::Error::from(Errno::EMFILE).kind()];
        assert!(kinds.contains(&error.kind()) && (left > 0 || error.kind() == kinds[0]), "{left}: {error}");
        assert!(error.to_string().contains("EMFILE"), "{left}: {error}");
        let error = connected.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{left}: {error}");
    }
    panic!("20 descriptors are not enough");
}
