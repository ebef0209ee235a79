//! The driver with several ids, without connections and listeners.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cmid_tokio::Tokio;
use cmid_tokio::proto::{Acks, ChannelKey, CmEvent, Limits, PortSpace, Time};
use cmid_tokio::sim::{Clock, Config, Fabric, SimDevice};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

fn driver() -> Tokio<SimDevice> {
    let fabric = Fabric::new(Config { clock: Clock::Real, ..Config::default() });
    Tokio::new(fabric.host(&["10.0.0.1".parse().unwrap()]).device(), Limits::default())
}

/// Begins to resolve the own address, on a channel of its own.
fn resolving(driver: &mut Tokio<SimDevice>) -> ChannelKey {
    let channel = driver.drive().open_channel(Acks::OnDelivery).unwrap();
    let id = driver.drive().create_id(Some(channel), PortSpace::Tcp).unwrap();
    driver.drive().resolve_addr(id, None, "10.0.0.1:7471".parse().unwrap(), Time::NEVER).unwrap();
    channel
}

#[tokio::test]
async fn a_wait_that_is_dropped_at_any_point_loses_no_event() {
    for polls in 0..4 {
        let mut driver = driver();
        let channel = resolving(&mut driver);
        let mut is_over = false;
        {
            let mut wait = pin!(driver.wait(None));
            for _ in 0..polls {
                let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                is_over |= matches!(polled, Poll::Ready(Ok(())));
                if is_over {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        if !is_over {
            timeout(SOON, driver.wait(None)).await.unwrap().unwrap();
        }
        assert_eq!(driver.drive().next_event(channel).unwrap().cm(), Some(CmEvent::AddrResolved));
    }
}

#[test]
fn without_a_runtime_a_wait_is_an_error() {
    let mut driver = driver();
    let _channel = resolving(&mut driver);
    let wait = pin!(driver.wait(None));
    assert!(matches!(wait.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_))));
}
