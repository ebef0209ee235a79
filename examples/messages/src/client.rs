//! The client: connects again whenever the connection has ended.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cmid_blocking::{Blocking, Canceller};
use cmid_proto::datapath::{CompletionQueue as _, DataPath};
use cmid_proto::handshake::{Dial, DialTo};
use cmid_proto::messages::Messages;
use cmid_proto::redial::{Cause, Redial, RedialLimits, Todo};
use cmid_proto::{Acks, CmEvent, IdKey, Limits, PrivateData, Time};

use crate::link::{CONFIG, Link, param};

/// Sends `count` numbers. Those that are not answered when the connection ends are sent again on the next one. Returns the
/// number of answers and of connections.
pub(crate) fn send<D: DataPath>(device: D, address: SocketAddr, count: u64) -> Result<(u64, u32)> {
    let mut driver = Blocking::new(device, Limits::default(), Canceller::new()?);
    let channel = driver.drive().open_channel(Acks::OnDelivery)?;
    let to = DialTo { param: param(), private_data: PrivateData::copy_of(&CONFIG.hello()), ..DialTo::new(address) };
    let mut redial = Redial::new(0, RedialLimits::default(), driver.drive().within(Duration::ZERO));
    let (mut dial, mut link): (Option<Dial<_>>, Option<(IdKey, Link<D>)>) = (None, None);
    let (mut sent, mut answered, mut connections) = (0, 0, 0);
    loop {
        let drive = driver.drive();
        let now = drive.within(Duration::ZERO);
        let mut todo = redial.handle_timeout(now, fastrand::u32(..));
        if let Todo::Dial { deadline } = todo {
            match Dial::start(drive, Some(channel), &to, deadline) {
                Ok(started) => dial = Some(started),
                Err(error) => todo = redial.failed(Cause::of(&error), now, fastrand::u32(..)),
            }
        }
        let mut is_lost = false;
        while let Some(event) = drive.next_event(channel) {
            let Some(calling) = &mut dial else {
                is_lost |= matches!(event.cm(), Some(CmEvent::Disconnected | CmEvent::DeviceRemoval));
                continue;
            };
            match calling.handle(drive, event, |drive, id| drive.attach_qp(id, Link::attach)) {
                Ok(None) => continue,
                Ok(Some(mut connected)) => {
                    todo = redial.established(now);
                    connected.attached.messages = Some(Messages::new(CONFIG, &connected.private_data, now)?);
                    link = Some((connected.id, connected.attached));
                    connections += 1;
                    sent = answered;
                }
                Err(error) => todo = redial.failed(Cause::of(&error), now, fastrand::u32(..)),
            }
            dial = None;
        }
        if let Some((id, connection)) = &mut link {
            let result = turn(connection, count, &mut sent, &mut answered, now);
            if connection.is_over() {
                return Ok((answered, connections));
            }
            if result.is_err() || is_lost {
                // A peer that has gone does not answer.
                let _ = drive.disconnect(*id, Time::NEVER);
                let _ = drive.detach_qp(*id, |device, id| device.destroy_qp(id));
                let _progress = drive.destroy(*id, Time::NEVER)?;
                link = None;
                todo = redial.lost(now, fastrand::u32(..));
            }
        }
        if let Todo::GiveUp(reason) = todo {
            bail!("no connection with {address}: {reason}");
        } else if let Some(late) = dial.take_if(|_| todo == Todo::Cancel) {
            let _progress = late.cancel(drive)?;
        }
        let alive = link.as_ref().and_then(|(_, link)| link.messages.as_ref()?.timeout());
        let due = redial.timeout().into_iter().chain(alive).min();
        driver.wait_with(link.as_ref().map(|(_, link)| link.cq.fd()), due.map(|due| due.since(now)))?;
    }
}

/// Takes the answers, and sends as many messages as there are credits for.
fn turn<D: DataPath>(link: &mut Link<D>, count: u64, sent: &mut u64, answered: &mut u64, now: Time) -> Result<()> {
    for answer in link.turn(now)? {
        ensure!(answer == answered.to_be_bytes(), "another answer: {answer:?}");
        *answered += 1;
    }
    while *sent < count && link.send(&sent.to_be_bytes(), now)? {
        *sent += 1;
    }
    if *answered == count {
        link.messages.iter_mut().for_each(|messages| messages.close(now.after(CONFIG.silence)));
        link.turn(now)?;
    }
    Ok(())
}
