//! Programs that are futures.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use cmid_proto::handshake::{Dial, DialTo};
use cmid_proto::{Acks, Time};
use cmid_sim::{Fault, Node, Task, check};

use crate::link::{Done, Link, RECEIVES};
use crate::server::{PARAM, PORT, Server};

const SECOND: Duration = Duration::from_secs(1);

/// Connects, sends the numbers from 1 to 10 one by one, gets them back. `None` if anything fails.
async fn talk(node: &Node) -> Option<()> {
    let mut drive = node.drive();
    let channel = drive.open_channel(Acks::OnDelivery).ok()?;
    let to = DialTo { param: PARAM, ..DialTo::new(node.addr_of("server", PORT)) };
    let mut dial = Dial::start(&mut drive, Some(channel), &to, node.now().after(SECOND)).ok()?;
    let mut connected = loop {
        let event = node.next_event(&mut drive, channel).await;
        if let Some(connected) = dial.handle(&mut drive, event, Link::attach).ok()? {
            break connected;
        }
    };
    let link: &mut Link = &mut connected.attached;
    for number in 1..=10 {
        link.send(RECEIVES, number).ok()?;
        let (mut is_sent, mut is_back) = (false, false);
        while !(is_sent && is_back) {
            match link.done(node).await.ok()? {
                Done::Sent(_) => is_sent = true,
                Done::Received(slot, back) => {
                    assert_eq!(back, number);
                    link.receive(slot).ok()?;
                    is_back = true;
                }
            }
        }
    }
    connected.attached.close(&mut drive, connected.id);
    Some(())
}

#[test]
fn a_program_is_an_async_block_under_any_faults() {
    check(0..100, |world| {
        world.host("server", Server::new);
        world.client("client", |node| {
            let here = node.clone();
            Task::new(node, async move {
                while here.within(SECOND, talk(&here)).await.flatten().is_none() {
                    here.sleep(Duration::from_millis(10) + here.random_time(Duration::from_millis(10))).await;
                }
            })
        });
        world.chaos(4, Duration::from_millis(2), &[Fault::Crash, Fault::PowerLoss, Fault::Loss, Fault::Partition]);
        world.run(SECOND * 30);
    });
}

#[test]
fn sleeps_and_limits_are_in_the_time_of_the_host() {
    check(0..3, |world| {
        world.client("a", |node| {
            let here = node.clone();
            Task::new(node, async move {
                here.sleep(SECOND * 3600).await;
                assert_eq!(here.now(), Time::ZERO.after(SECOND * 3600));
                let sleeps = here.sleep(SECOND * 5);
                assert_eq!(here.within(SECOND, sleeps).await, None);
                assert_eq!(here.within(SECOND * 9, here.sleep(SECOND)).await, Some(()));
                assert_eq!(here.now(), Time::ZERO.after(SECOND * 3602));
            })
        });
        world.run(SECOND * 4000);
    });
}

#[test]
fn a_future_that_wakes_its_task_is_polled_again_without_an_arrival() {
    let polled = Rc::new(Cell::new(0));
    let count = Rc::clone(&polled);
    check(0..1, move |world| {
        let count = Rc::clone(&count);
        world.client("a", move |node| {
            let (count, waker) = (Rc::clone(&count), RefCell::new(None::<Waker>));
            Task::new(
                node,
                std::future::poll_fn(move |context| {
                    count.set(count.get() + 1);
                    waker.replace(Some(context.waker().clone()));
                    waker.borrow().iter().for_each(Waker::wake_by_ref);
                    if count.get() < 5 { Poll::Pending } else { Poll::Ready(()) }
                }),
            )
        });
        world.run(SECOND);
    });
    assert_eq!(polled.get(), 5);
}
