//! The state of the two devices after a fault.
//!
//! When rxe finds no route for a message of the connection manager, the GSI QP of the device goes to the error state
//! (`rxe_requester`, `rxe_qp_error`). ib_mad then moves the QP to RTS, as after an error of the send queue only
//! (`ib_mad_send_error`). Linux 6.12 refuses this, and the QP stays in ERR. Linux 6.1 trusts the current state that
//! ib_mad passes (`rxe_qp_chk_attr`). The QP is then in RTS again and sends, but its receiving half stays in the
//! error state, which no query shows. Either way no connection can be made until the device is deleted and added
//! again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cmid_harness::{Check, Disturbance, Env, Fixture, Side};
use cmid_proto::{Acks, CmEvent, PortSpace, Time};

use crate::fixture::{MOMENT, SOON, STANDS};
use crate::link::other;
use crate::{Expected, FaultFixture, Link};

/// The line noted when both devices work.
pub(crate) const FINE: &str = "the devices: can send and receive";

/// Nothing remains of the fault once it is repaired.
pub(crate) const RECOVERED: Expected = Expected::Always(&["all is well again", FINE, STANDS]);

/// Only a new device helps.
pub(crate) const NONE: &str = "no new connection until the device is deleted and added again";

/// On Linux 6.12.
pub(crate) const CLIENT: &str = "the client's device: cannot send any more (its GSI QP is in the state ERR)";
/// On Linux 6.12.
pub(crate) const SERVER: &str = "the server's device: cannot send any more (its GSI QP is in the state ERR)";
/// On Linux 6.12.
pub(crate) const BOTH: &str = "both devices: cannot send any more (their GSI QPs are in the state ERR)";
/// On Linux 6.1.
pub(crate) const CLIENT_IS_DEAF: &str =
    "the client's device: does not receive any more (though its GSI QP is in the state RTS)";
/// On Linux 6.1.
pub(crate) const SERVER_IS_DEAF: &str =
    "the server's device: does not receive any more (though its GSI QP is in the state RTS)";
/// On Linux 6.1.
pub(crate) const BOTH_ARE_DEAF: &str =
    "both devices: do not receive any more (though their GSI QPs are in the state RTS)";

/// The time after which a request counts as lost: twice the interval of retransmission.
const HEARING: Duration = Duration::from_secs(13);

impl<L: Env> FaultFixture<'_, L> {
    /// Notes which devices cannot send or receive any more. Returns them.
    pub(crate) fn looks_at_the_devices(&mut self) -> Check<Vec<Side>> {
        let mut mute = Vec::new();
        for end in Link::ENDS {
            if !self.link.can_send(end)? {
                mute.push(end);
            }
        }
        let mut deaf = Vec::new();
        if mute.is_empty() {
            for end in Link::ENDS {
                if !self.receives(end)? {
                    deaf.push(end);
                }
            }
        }
        self.note(match (mute.as_slice(), deaf.as_slice()) {
            ([], []) => FINE,
            ([Side::Client], _) => CLIENT,
            ([Side::Server], _) => SERVER,
            ([], [Side::Client]) => CLIENT_IS_DEAF,
            ([], [Side::Server]) => SERVER_IS_DEAF,
            ([], _) => BOTH_ARE_DEAF,
            (_, _) => BOTH,
        });
        mute.append(&mut deaf);
        Ok(mute)
    }

    /// Whether a request from the other end arrives at this end.
    fn receives(&mut self, end: Side) -> Check<bool> {
        let mut b = Fixture::new(self.b.env, Acks::OnDelivery)?;
        let (from, there) = (other(end), SocketAddr::new(self.link.ip(end), b.address.port()));
        let channel = b.endpoint(end).channel;
        let drive = b.endpoint(end).drive();
        let listener = drive.create_id(Some(channel), PortSpace::Tcp)?;
        drive.bind(listener, there)?;
        drive.listen(listener, 1)?;

        let (here, param, channel) = ((self.link.ip(from), 0).into(), b.param(), b.endpoint(from).channel);
        let drive = b.endpoint(from).drive();
        let id = drive.create_id(Some(channel), PortSpace::Tcp)?;
        let deadline = drive.within(SOON);
        drive.resolve_addr(id, Some(here), there, deadline)?;
        b.expect(from, id, CmEvent::AddrResolved, 0, 0)?;
        b.endpoint(from).drive().resolve_route(id, Time::NEVER)?;
        b.expect(from, id, CmEvent::RouteResolved, 0, 0)?;
        b.endpoint(from).drive().connect(id, param, &[], Time::NEVER)?;

        let (last, channel) = (Instant::now() + HEARING, b.endpoint(end).channel);
        while Instant::now() < last {
            if b.endpoint(end).drive().next_event(channel).is_some() {
                return Ok(true);
            }
            b.pump(MOMENT)?;
        }
        Ok(false)
    }

    /// Deletes and adds the devices again if one cannot send or receive any more.
    pub(crate) fn renew(&mut self) -> Check {
        let broken = self.looks_at_the_devices()?;
        if broken.is_empty() {
            return Ok(());
        }
        self.destroy_all()?;
        for end in broken {
            self.link.remove_device(end)?;
        }
        self.b.env.disturb(Disturbance::DeviceComes)
    }
}
