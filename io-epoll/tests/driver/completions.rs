//! A wait for events, the descriptor of a CQ and a deadline.

use std::thread;
use std::time::{Duration, Instant};

use cmid_epoll::Epoll;
use cmid_proto::datapath::{Access, Completion, QpParts, SendWr, prelude::*};
use cmid_proto::{ChannelKey, CmEvent, ConnParam, Event, Time};
use cmid_sim::{Cq, SimDevice};

use crate::{A_WHILE, PEER, SOON, channel, driver, listen, resolve};

/// The example of [`Epoll::wait_with`], with one CQ of one place.
fn next(
    driver: &mut Epoll<SimDevice>,
    on: ChannelKey,
    cq: &mut Cq,
    at_most: Duration,
) -> (Option<Completion>, Option<Event>) {
    let (end, mut one) = (driver.drive().within(at_most), [Completion::default()]);
    loop {
        let (polled, event) = (cq.poll_or_arm(&mut one).unwrap(), driver.drive().next_event(on));
        let left = end.since(driver.drive().now());
        if polled > 0 || event.is_some() || left.is_zero() {
            return ((polled > 0).then_some(one[0]), event);
        }
        driver.wait_with(Some(cq.fd()), Some(left)).unwrap();
    }
}

#[test]
fn a_completion_an_event_or_the_deadline_ends_a_wait() {
    let mut driver = driver();
    let on = channel(&mut driver);
    listen(&mut driver, on);
    let client = resolve(&mut driver, on, PEER, Time::NEVER);
    let (mut sides, mut established): (Vec<QpParts<SimDevice>>, _) = (Vec::new(), 0);
    while established < 2 {
        driver.wait(Some(SOON)).unwrap();
        while let Some(event) = driver.drive().next_event(on) {
            match event.cm().unwrap() {
                CmEvent::AddrResolved => driver.drive().resolve_route(client, Time::NEVER).unwrap(),
                CmEvent::RouteResolved => {
                    sides.push(driver.drive().qp(client).attach().unwrap());
                    driver.drive().connect(client, ConnParam::default(), &[], Time::NEVER).unwrap();
                }
                CmEvent::ConnectRequest => {
                    sides.push(driver.drive().qp(event.id).attach().unwrap());
                    driver.drive().accept(event.id, ConnParam::default(), &[], Time::NEVER).unwrap();
                }
                CmEvent::Established => established += 1,
                other => panic!("{other}"),
            }
        }
    }
    let [mut sends, mut receives]: [QpParts<SimDevice>; 2] = sides.try_into().unwrap();
    let [sent, received] = [&sends, &receives].map(|it| it.pd.register([7; 4], Access::LOCAL_WRITE).unwrap());

    let begun = Instant::now();
    assert_eq!(next(&mut driver, on, &mut receives.cq, A_WHILE), (None, None), "the deadline");
    assert!(begun.elapsed() >= A_WHILE);

    receives.qp.post_recv(1, received.sge(0..4)).unwrap();
    let sender = thread::spawn(move || {
        thread::sleep(A_WHILE);
        sends.qp.post_send(SendWr::send(2, sent.sge(0..4))).unwrap();
        (sends, sent)
    });
    let (completion, event) = next(&mut driver, on, &mut receives.cq, SOON);
    assert_eq!((completion.map(|completion| completion.wr_id), event), (Some(1), None));
    let _sends = sender.join().unwrap();

    driver.drive().disconnect(client, Time::NEVER).unwrap();
    let (completion, event) = next(&mut driver, on, &mut receives.cq, SOON);
    assert_eq!((completion, event.and_then(|event| event.cm())), (None, Some(CmEvent::Disconnected)));
    assert!(begun.elapsed() < SOON, "no wait has ended at its time limit");
}
