//! Messages over a connection, awaited by futures some of which are dropped, and beside other futures.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use cmid_tokio::Connection;
use cmid_tokio::proto::datapath::{Completion, CompletionQueue};
use cmid_tokio::sim::{Clock, SimDevice};
use common::{LIMIT, RECEIVES, Side, World, ends};
use tokio::sync::oneshot;

const MESSAGES: u8 = 200;

/// Returns the next completion. Before that, drops some futures that wait for it.
async fn next(connection: &mut Connection<SimDevice>) -> Completion {
    let mut one = [Completion::default()];
    let wait = async {
        loop {
            let limit = Duration::from_micros(50);
            if let Ok(polled) = tokio::time::timeout(limit, connection.next_completions(&mut one)).await {
                break polled.unwrap();
            }
        }
    };
    assert_eq!(ends(wait).await, 1);
    one[0]
}

async fn exchange([client, server]: [Side; 2]) {
    let Side { mut connection, mut port } = client;
    let send = async {
        for number in 0..MESSAGES {
            port.send(number);
            let completion = next(&mut connection).await;
            assert!(completion.is_success() && completion.wr_id == u64::from(number));
        }
        assert!(connection.cq().take_notifications().unwrap() <= 1, "notifications accumulate");
    };
    let Side { connection: mut other, port: mut other_port } = server;
    let receive = async {
        for number in 0..MESSAGES {
            let completion = next(&mut other).await;
            assert!(completion.is_success() && other_port.byte(completion.wr_id) == number);
            other_port.receive(u8::try_from(completion.wr_id).unwrap());
        }
    };
    tokio::join!(send, receive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_that_are_dropped_take_no_completion_of_many_connections_at_a_time() {
    let world = World::new(Clock::Real);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        tasks.push(tokio::spawn(exchange(world.connected().await)));
    }
    for task in tasks {
        ends(task).await.unwrap();
    }
}

/// A task posts and another one waits; that one disconnects when it is told to.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_completions_and_for_another_task_that_posts() {
    let [client, mut server] = World::paused().connected().await;
    let Side { mut connection, mut port } = client;
    let (stop, mut stopped) = oneshot::channel();
    let wait = tokio::spawn(async move {
        let (mut some, mut successes) = ([Completion::default(); 4], 0);
        loop {
            tokio::select! {
                polled = connection.next_completions(&mut some) => {
                    successes += some[..polled.unwrap()].iter().filter(|it| it.is_success()).count();
                }
                _ = &mut stopped => {
                    connection.disconnect(LIMIT).await.unwrap();
                    return successes;
                }
            }
        }
    });
    for byte in 0..RECEIVES {
        port.send(byte);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    stop.send(()).unwrap();
    let (successes, closed) = ends(async { tokio::join!(wait, server.connection.closed()) }).await;
    assert_eq!(successes.unwrap(), usize::from(RECEIVES));
    closed.unwrap();
}
