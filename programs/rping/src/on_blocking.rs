//! The ping with blocking calls.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cmid_blocking::{Connection, Error, ListenOptions, Listener, Ready};
use cmid_proto::CmEvent;
use cmid_proto::datapath::DataPath;
use cmid_trace::Trace;

use crate::agent::{PATIENCE, STILL, options};
use crate::log::Log;
use crate::on_driver::Side;
use crate::session::{Plan, Progress, Session};

pub(crate) fn ping<D: DataPath>(device: D, trace: Option<Trace>, side: Side) -> Result<()> {
    let (Side { address, plan, log, listens }, options) = (side, options());
    if plan.server {
        let mut listener = Listener::observed(device, trace, address, &ListenOptions::default())?;
        let _ = listens.send(());
        log.print(&format!("listens on {}", listener.local_addr()?));
        let incoming = loop {
            match listener.accept(Duration::from_secs(3600)) {
                // A server waits for its client without a limit.
                Err(Error::TimedOut { .. }) => {}
                result => break result?,
            }
        };
        let (connection, session) = incoming.accept(&options, |device, id| Session::new(device, id, plan))?;
        converse(connection, session, plan, log)
    } else {
        log.print(&format!("connects to {address}"));
        let (connection, session) =
            Connection::observed(device, trace, None, address, &options, |device, id| Session::new(device, id, plan))?;
        converse(connection, session, plan, log)
    }
}

fn converse<D: DataPath>(
    mut connection: Connection<D, Option<Trace>>,
    mut session: Session<D>,
    plan: Plan,
    log: Log,
) -> Result<()> {
    let note = |connection: &mut Connection<D, Option<Trace>>, what: &str| {
        let (id, driver) = connection.parts();
        log.note(driver.drive(), id, what);
    };
    note(&mut connection, if plan.server { "has accepted a connection" } else { "has connected" });
    session.start()?;
    loop {
        match connection.wait_for(Some(session.cq_fd()), STILL)? {
            Ready::Descriptor => {
                if session.run()? == Progress::Finished {
                    break;
                }
            }
            Ready::Event(event) => match event.cm() {
                Some(CmEvent::Disconnected) if plan.server => break,
                Some(CmEvent::Disconnected) => bail!("the server ended the connection after {} pings", session.pings()),
                Some(_) | None => note(&mut connection, &format!("<- {}", event.kind)),
            },
        }
    }
    note(&mut connection, &format!("disconnects after {} pings", session.pings()));
    connection.disconnect(PATIENCE)?;
    note(&mut connection, "is disconnected");
    ensure!(plan.server || session.pings() == plan.count, "{} of {} pings", session.pings(), plan.count);
    Ok(())
}
