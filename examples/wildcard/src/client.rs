//! A client: connects and reads the memory of the server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use cmid_blocking::{Connection, Options, Ready};
use cmid_proto::datapath::{Access, CreateError, DataPath, QpParts, SendWr, WcStatus, prelude::*};

use crate::server::{self, LIMIT, SIZE};

/// Returns the text in the memory of the server, without the zeros at its end.
pub(crate) fn run<D: DataPath>(device: D, address: SocketAddr) -> Result<String> {
    let options = Options { timeout: LIMIT, ..Options::default() };
    let (mut connection, (QpParts { mut qp, mut cq, .. }, mr)) =
        Connection::connect(device, address, &options, |device, attaching| {
            let made = device.qp(attaching).attach()?;
            let mr = made.pd.register(vec![0; SIZE], Access::LOCAL_WRITE)?;
            Ok::<_, CreateError>((made, mr))
        })?;
    let remote = server::decode(connection.private_data()).context("the server sent no address")?;
    cq.arm()?;
    qp.post_send(SendWr::read(1, mr.sge(0..SIZE), remote))?;
    let done = loop {
        if let Some(done) = cq.poll_one()? {
            break done;
        }
        match connection.wait_for(Some(cq.fd()), LIMIT)? {
            Ready::Descriptor => {
                cq.take_notifications()?;
                cq.arm()?;
            }
            Ready::Event(event) => bail!("{} while the read was awaited", event.kind),
        }
    };
    ensure!(done.status == WcStatus::SUCCESS, "the read failed: {}", done.status);
    let mut bytes = [0; SIZE];
    mr.read(0, &mut bytes)?;
    connection.disconnect(LIMIT)?;
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(std::str::from_utf8(text)?.to_owned())
}
