//! Messages over connections, awaited by futures, some of which are dropped.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use cmid_epoll::proto::datapath::{Access, Caps, Completion, SendWr, WcStatus, prelude::*};
use cmid_epoll::proto::handshake::DialTo;
use cmid_epoll::proto::{ConnParam, Error, IdKey};
use cmid_epoll::sim::{self, Clock, Cq, Fabric, Mr, Qp, SimDevice};
use on_tokio::{Completions, Connection, DriveOf, Reactor};

const LIMIT: Duration = Duration::from_secs(10);

const MESSAGES: u8 = 200;

/// A QP with its CQ and a slot of memory for each message.
struct Port {
    qp: Qp,
    /// `None` once a task waits for completions.
    completions: Option<Completions<Cq>>,
    mr: Mr,
}

fn attach(drive: &mut DriveOf<SimDevice>, id: IdKey) -> Result<Port, Error> {
    drive.attach_qp(id, |device, to| {
        let (pd, cq) = (device.alloc_pd(to.id())?, device.create_cq(to.id(), 512)?);
        let mr = pd.register(vec![0; MESSAGES.into()], Access::LOCAL_WRITE).map_err(|(_, error)| error.errno())?;
        let caps = Caps { max_send_wr: MESSAGES.into(), max_recv_wr: MESSAGES.into(), ..Caps::default() };
        let mut qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        for slot in 0..usize::from(MESSAGES) {
            qp.post_recv(slot as u64, mr.sge(slot..slot + 1))?;
        }
        let completions = Some(Completions::new(cq).unwrap());
        Ok(Port { qp, completions, mr })
    })
}

async fn connected() -> ([Reactor<SimDevice>; 2], [Connection<SimDevice, Port>; 2]) {
    let fabric = Fabric::new(sim::Config { clock: Clock::Real, ..sim::Config::default() });
    let reactors = ["10.0.0.1", "10.0.0.2"].map(|addr| {
        let host = fabric.host(&[addr.parse().unwrap()]);
        Reactor::new(host.device(), Default::default()).unwrap()
    });
    let to = DialTo::new("10.0.0.2:7471".parse().unwrap());
    let mut listener = reactors[1].listen(to.peer, 4).unwrap();
    let serve = async { listener.accept().await?.accept(ConnParam::default(), &[], LIMIT, attach).await };
    let (client, server) = tokio::try_join!(reactors[0].connect(&to, LIMIT, attach), serve).unwrap();
    (reactors, [client, server])
}

/// Returns the next completion. Before that, drops some futures that wait for it.
async fn next(completions: &mut Completions<Cq>) -> Completion {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < LIMIT, "no completion");
        if let Ok(completion) = tokio::time::timeout(Duration::from_micros(50), completions.next()).await {
            return completion.unwrap();
        }
    }
}

#[tokio::test]
async fn futures_that_are_dropped_take_no_completion() {
    let (_reactors, [mut client, mut server]) = connected().await;
    let [mut sent, mut received] = [&mut client, &mut server].map(|it| it.attached().completions.take().unwrap());
    let send = async {
        let Port { qp, mr, .. } = client.attached();
        for number in 0..MESSAGES {
            let slot = usize::from(number);
            mr.write(slot, &[number]).unwrap();
            qp.post_send(SendWr::send(number.into(), mr.sge(slot..slot + 1))).unwrap();
            let completion = next(&mut sent).await;
            assert_eq!((completion.wr_id, completion.status), (number.into(), WcStatus::SUCCESS));
        }
    };
    let receive = async {
        let Port { mr, .. } = server.attached();
        for number in 0..MESSAGES {
            let completion = next(&mut received).await;
            let mut byte = [0];
            mr.read(completion.wr_id as usize, &mut byte).unwrap();
            assert_eq!((completion.wr_id, byte), (number.into(), [number]));
        }
    };
    tokio::join!(send, receive);
    assert_eq!(received.cq().poll_one().unwrap(), None);
}

/// A disconnect completes the posted receives, so a future that waits for one ends.
#[tokio::test]
async fn the_end_of_a_connection_ends_a_future_that_waits() {
    let (_reactors, [client, mut server]) = connected().await;
    let mut completions = server.attached().completions.take().unwrap();
    let end = async {
        server.closed().await?;
        server.disconnect(LIMIT).await
    };
    let waits = tokio::time::timeout(LIMIT, completions.next());
    let (completion, ended, disconnected) = tokio::join!(waits, end, client.disconnect(LIMIT));
    assert_eq!(completion.unwrap().unwrap().status, WcStatus::WR_FLUSH_ERR);
    ended.unwrap();
    disconnected.unwrap();
}
