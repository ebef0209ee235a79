//! How connections end, by both sides and by one, and what a task sees that waits for completions only.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmid_harness::Fragile;
use cmid_tokio::proto::datapath::{Attaching, Completion, MemoryRegion, QueuePair, SendWr, WcStatus};
use cmid_tokio::proto::handshake::HandshakeError;
use cmid_tokio::proto::{Acks, DeviceLayer, Errno, Limits, PortSpace, State, Time};
use cmid_tokio::sim::{Clock, Cq, SimDevice};
use cmid_tokio::{Connection, Options, Tokio};
use common::{LIMIT, Port, RECEIVES, Side, World, attach, ends, server};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::runtime::Builder;
use tokio::time::Instant;

/// Takes completions until the end, and returns those of receives: successful ones, and flushed ones.
async fn until_the_end(connection: &mut Connection<SimDevice>) -> io::Result<[usize; 2]> {
    let (mut counts, mut some) = ([0; 2], [Completion::default(); 3]);
    loop {
        match connection.next_completions(&mut some).await? {
            0 => return Ok(counts),
            polled => {
                for completion in &some[..polled] {
                    assert!(completion.is_success() || completion.status == WcStatus::WR_FLUSH_ERR, "{completion:?}");
                    counts[usize::from(!completion.is_success())] += 1;
                }
            }
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.kind() == io::Error::from(errno).kind()
}

#[tokio::test(start_paused = true)]
async fn both_sides_disconnect() {
    let [mut client, mut server] = World::paused().connected().await;
    let both = async { tokio::join!(client.connection.disconnect(LIMIT), server.connection.disconnect(LIMIT)) };
    let (client, server) = ends(both).await;
    client.unwrap();
    server.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attach_fails_with_any_error_and_the_connect_returns_it() {
    let world = World::paused();
    let _listener = world.listener();
    let own = |_: &mut SimDevice, _: Attaching<'_>| Err::<(Cq, ()), _>("no licence");
    let error = Connection::connect(world.client.device(), server(), &Options::default(), own).await.err().unwrap();
    assert_eq!(error.to_string(), "no licence");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    assert!(matches!(inner, Some(HandshakeError::Attach(own)) if own.to_string() == "no licence"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_completions_only_gets_what_is_left_and_the_end() {
    let world = World::paused();
    let [mut client, mut server] = world.connected().await;
    let serve = tokio::spawn(async move {
        let counts = until_the_end(&mut server.connection).await.unwrap();
        // Both end together, and stay at the end.
        ends(server.connection.closed()).await.unwrap();
        assert_eq!(server.connection.next_completions(&mut [Completion::default()]).await.unwrap(), 0);
        assert_eq!(server.connection.state(), State::TimeWait);
        counts
    });
    for byte in 0..3 {
        client.port.send(byte);
        assert_eq!(client.connection.next_completions(&mut [Completion::default()]).await.unwrap(), 1);
    }
    // The server confirms by its wait for completions.
    ends(client.connection.disconnect(LIMIT)).await.unwrap();
    assert_eq!(ends(serve).await.unwrap(), [3, usize::from(RECEIVES) - 3]);
    // The own disconnect has flushed the client's receives.
    assert_eq!(ends(until_the_end(&mut client.connection)).await.unwrap(), [0, RECEIVES.into()]);
}

#[tokio::test(start_paused = true)]
async fn a_qp_is_drained_behind_unsignaled_requests_by_a_deadline() {
    let [mut client, mut server] = World::paused().connected().await;
    let Port { qp, mr, .. } = &mut client.port;
    let working = client.connection.drain(qp, LIMIT, |completion| panic!("{completion:?}")).await.unwrap_err();
    assert_eq!(
        (working.kind(), working.to_string().as_str()),
        (ErrorKind::InvalidInput, "the QP is in RTS: disconnect first")
    );
    // Nothing but the drain ends it.
    qp.post_send(SendWr::send(1, mr.sge(0..1)).unsignaled()).unwrap();
    assert_eq!(server.connection.next_completions(&mut [Completion::default()]).await.unwrap(), 1);
    let both = async { tokio::join!(client.connection.closed(), server.connection.disconnect(LIMIT)) };
    ends(both).await.0.unwrap();
    let mut flushed = 0;
    ends(client.connection.drain(qp, LIMIT, |completion| flushed += u8::from(!completion.is_success()))).await.unwrap();
    assert_eq!((flushed, qp.unpolled().is_none()), (RECEIVES, true));
    // A queue that is full of unsignaled requests stays so.
    let [mut client, mut server] = World::paused().connected().await;
    let Port { qp, mr, .. } = &mut client.port;
    (0..RECEIVES).for_each(|slot| server.port.receive(slot));
    for wr_id in 0..2 * u64::from(RECEIVES) {
        qp.post_send(SendWr::send(wr_id, mr.sge(0..0)).unsignaled()).unwrap();
    }
    while server.port.qp.unpolled().receives > 0 {
        server.connection.next_completions(&mut [Completion::default()]).await.unwrap();
    }
    tokio::time::sleep(LIMIT).await;
    ends(async { tokio::join!(client.connection.disconnect(LIMIT), server.connection.disconnect(LIMIT)) })
        .await
        .0
        .unwrap();
    let begun = Instant::now();
    let full = client.connection.drain(qp, LIMIT, drop).await.unwrap_err();
    assert_eq!((full.kind(), begun.elapsed() >= LIMIT), (ErrorKind::TimedOut, true), "{full}");
}

#[tokio::test(start_paused = true)]
async fn messages_that_were_not_polled_before_the_end_are_not_lost() {
    let world = World::paused();
    let [mut client, mut server] = world.connected().await;
    (0..RECEIVES).for_each(|byte| client.port.send(byte));
    for _ in 0..RECEIVES {
        client.connection.next_completions(&mut [Completion::default()]).await.unwrap();
    }
    let (client, closed) =
        ends(async { tokio::join!(client.connection.disconnect(LIMIT), server.connection.closed()) }).await;
    client.unwrap();
    closed.unwrap();
    // As a stream, which stays at its end.
    for left in [RECEIVES.into(), 0] {
        let all = server.connection.by_ref().map(|completion| completion.unwrap().is_success());
        assert_eq!(ends(all.collect::<Vec<_>>()).await, vec![true; left]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drop_confirms_and_ends_the_connection_of_the_peer() {
    let world = World::paused();
    let [client, mut server] = world.connected().await;
    drop(client);
    ends(server.connection.closed()).await.unwrap();
    let [mut client, server] = world.connected().await;
    let wait = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(server);
    };
    let (disconnected, ()) = ends(async { tokio::join!(client.connection.disconnect(LIMIT), wait) }).await;
    disconnected.unwrap();
    // The connection has ended, so these do not wait.
    ends(client.connection.disconnect(LIMIT)).await.unwrap();
    ends(client.connection.closed()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_confirms_nothing_lets_the_limit_pass() {
    let [mut client, server] = World::paused().connected().await;
    // No time is enough to tell the peer. Each later call waits again.
    for limit in [Duration::ZERO, LIMIT, LIMIT / 2] {
        let begun = tokio::time::Instant::now();
        let error = ends(client.connection.disconnect(limit)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let took = begun.elapsed();
        assert!(took >= limit && took < limit + Duration::from_millis(10), "{took:?}");
    }
    let Side { connection: mut peer, .. } = server;
    ends(async { tokio::join!(client.connection.disconnect(LIMIT), peer.closed()) }).await.0.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_without_time_learns_that_the_peer_has_confirmed() {
    let [mut client, mut server] = World::paused().connected().await;
    client.connection.disconnect(Duration::ZERO).await.unwrap_err();
    ends(server.connection.closed()).await.unwrap();
    tokio::time::sleep(LIMIT).await;
    client.connection.disconnect(Duration::ZERO).await.unwrap();
}

/// An unsignaled send that has succeeded ends with the completion of a later one, which never comes.
#[tokio::test(start_paused = true)]
async fn work_that_never_completes_delays_the_end_by_a_second() {
    use cmid_tokio::proto::datapath::{MemoryRegion, QueuePair, SendWr};
    let [mut client, server] = World::paused().connected().await;
    let Side { connection, port } = &mut client;
    port.qp.post_send(SendWr::send(1, port.mr.sge(0..1)).unsignaled()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(server);
    connection.closed().await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(ends(until_the_end(connection)).await.unwrap(), [0, RECEIVES.into()]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_millis(1100), "{took:?}");
}

/// Nobody takes these events; at 32 of them a drive would read no more.
#[tokio::test(start_paused = true)]
async fn events_that_end_nothing_do_not_hide_the_end() {
    let world = World::paused();
    let [client, mut server] = world.connected().await;
    let changes = async {
        for _ in 0..100 {
            world.server.fail_over();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(client);
    };
    let (closed, ()) = ends(async { tokio::join!(server.connection.closed(), changes) }).await;
    closed.unwrap();
}

/// Without a turn that ends it would block its thread, so that no limit of the test passed.
#[test]
fn an_event_of_another_id_that_nobody_takes_leaves_the_runtime_to_other_tasks() {
    let (ended, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let waits = async {
            let [mut client, _server] = World::new(Clock::Real).connected().await;
            let drive = client.connection.parts().1;
            let channel = drive.open_channel(Acks::OnDelivery).unwrap();
            let other = drive.create_id(Some(channel), PortSpace::Tcp).unwrap();
            drive.resolve_addr(other, None, server(), Time::NEVER).unwrap();
            let closed = tokio::time::timeout(Duration::from_millis(100), client.connection.closed()).await;
            (closed.is_err(), client.connection.parts().1.next_event(channel).unwrap().id == other)
        };
        ended.send(Builder::new_current_thread().enable_all().build().unwrap().block_on(waits)).unwrap();
    });
    assert_eq!(ends.recv_timeout(Duration::from_secs(20)), Ok((true, true)));
}

#[tokio::test(start_paused = true)]
async fn what_has_come_before_a_limit_counts_even_if_nobody_looks_until_after_it() {
    let world = World::new(Clock::Virtual);
    let following = tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
    let [mut client, server] = world.connected().await;
    following.abort();
    let mut disconnect = std::pin::pin!(client.connection.disconnect(LIMIT));
    assert!(once(disconnect.as_mut()).await.is_none());
    drop(server);
    world.fabric.advance_by(Duration::from_millis(1));
    tokio::time::advance(2 * LIMIT).await;
    once(disconnect).await.unwrap().unwrap();
}

/// Polls a future once.
async fn once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_refused_loses_no_notification() {
    let world = World::new(Clock::Virtual);
    let following = tokio::spawn(cmid_tokio::advance_with_clock(world.fabric.clone()));
    let [mut client, mut server] = world.connected().await;
    following.abort();
    let Side { connection, port } = &mut server;
    let mut some = [Completion::default()];
    assert!(once(std::pin::pin!(connection.next_completions(&mut some))).await.is_none(), "the CQ is armed");
    let mut is_sent = |byte| {
        client.port.send(byte);
        world.fabric.advance_by(Duration::from_millis(1));
    };
    is_sent(0);
    let refused = connection.drain(&mut port.qp, LIMIT, drop).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    assert_eq!(connection.next_completions(&mut some).await.unwrap(), 1);
    // In a task, which looks only when it is woken.
    let next = tokio::spawn(async move { server.connection.next_completions(&mut [Completion::default()]).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    is_sent(1);
    assert_eq!(ends(next).await.unwrap().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_the_device_ends_each_wait() {
    for wait in 0..4 {
        let world = World::paused();
        let [mut client, _server] = world.connected().await;
        let removed = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.client.remove_device();
        };
        let connection = &mut client.connection;
        let waits = async {
            match wait {
                0 => connection.closed().await,
                1 => connection.disconnect(LIMIT).await,
                2 => until_the_end(connection).await.map(drop),
                _ => connection.try_for_each(|_completion| async { Ok(()) }).await,
            }
        };
        let (ended, ()) = ends(async { tokio::join!(waits, removed) }).await;
        let error = ended.unwrap_err();
        assert!(is(&error, Errno::ENODEV) || (wait >= 2 && is(&error, Errno::EIO)), "{wait}: {error}");
        assert!(wait < 3 || client.connection.next().await.is_none(), "the stream has told the error");
    }
}

#[tokio::test(start_paused = true)]
async fn the_removal_of_the_device_ends_an_accept() {
    let world = World::paused();
    let mut listener = world.listener();
    let removed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.server.remove_device();
    };
    let (accepted, ()) = ends(async { tokio::join!(listener.accept(), removed) }).await;
    assert!(is(&accepted.unwrap_err(), Errno::ENODEV));
    assert!(is(&ends(listener.accept()).await.unwrap_err(), Errno::ENODEV));
}

#[tokio::test(start_paused = true)]
async fn a_reject_has_its_reason_and_a_silent_server_its_limit() {
    let world = World::paused();
    let options = Options { timeout: LIMIT, ..Options::default() };
    let connect = || Connection::connect(world.client.device(), server(), &options, attach);
    // Nobody listens.
    assert_eq!(ends(connect()).await.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let mut listener = world.listener();
    let reject = async { listener.accept().await?.reject(b"no") };
    let (connected, rejected) = ends(async { tokio::join!(connect(), reject) }).await;
    rejected.unwrap();
    let error = connected.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    // A request that is dropped is rejected.
    let refuse = async { listener.accept().await.map(drop) };
    let (connected, refused) = ends(async { tokio::join!(connect(), refuse) }).await;
    refused.unwrap();
    assert_eq!(connected.err().unwrap().kind(), ErrorKind::ConnectionRefused);
    // A request that nobody takes.
    assert_eq!(ends(connect()).await.err().unwrap().kind(), ErrorKind::TimedOut);
}

/// Each operation of an end fails once. The next call goes on where the first one was.
#[tokio::test(start_paused = true)]
async fn an_end_that_fails_at_any_operation_can_be_repeated() {
    for end in 0..3 {
        let mut failed = 0;
        for nth in 1.. {
            let (world, left) = (World::paused(), Arc::new(AtomicU32::new(0)));
            let (mut listener, options) = (world.listener(), Options::default());
            let device = Fragile::nth(world.client.device(), Arc::clone(&left), Errno::ENOMEM);
            let attach_it = |device: &mut Fragile<SimDevice>, to: Attaching<'_>| attach(device.inner_mut(), to);
            let connect = Connection::connect(device, server(), &options, attach_it);
            let accept = async { listener.accept().await?.accept(&options, attach).await };
            let ((mut connection, _port), (mut peer, _peers)) =
                ends(async { tokio::try_join!(connect, accept) }).await.unwrap();
            let peer =
                tokio::spawn(async move { if end == 0 { peer.closed().await } else { peer.disconnect(LIMIT).await } });
            left.store(nth, Ordering::Relaxed);
            let mut call = async || match end {
                0 => connection.disconnect(LIMIT).await,
                1 => connection.closed().await,
                _ => {
                    while connection.next_completions(&mut [Completion::default()]).await? > 0 {}
                    Ok(())
                }
            };
            let first = ends(call()).await;
            let has_fired = left.swap(0, Ordering::Relaxed) == 0;
            if let Err(error) = first {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{end} {nth}: {error}");
                ends(call()).await.unwrap();
                failed += 1;
            }
            ends(peer).await.unwrap().unwrap();
            if !has_fired {
                break;
            }
        }
        assert!(failed > 0, "{end}");
    }
}

#[test]
fn outside_of_a_runtime_a_wait_is_an_error_and_no_panic() {
    let world = World::new(Clock::Real);
    let mut listener = world.listener();
    let mut driver = Tokio::new(world.client.device(), Limits::default());
    let _channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let accepted = std::pin::pin!(listener.accept()).poll(&mut context);
    assert!(matches!(accepted, Poll::Ready(Err(_))));
    let waited = std::pin::pin!(driver.wait(None)).poll(&mut context);
    assert!(matches!(waited, Poll::Ready(Err(_))));
}
