//! Errors. Each is one line with a remedy.

use std::net::{IpAddr, SocketAddr};

use cmid_epoll::proto::handshake::HandshakeError;
use cmid_epoll::proto::{CmEvent, Errno};
use thiserror::Error;

use crate::port::PortError;
use crate::wire::{HELLO_LEN, Service, VERSION, WireError};

/// The reason why a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A local address is not one of an RDMA device.
    #[error(
        "{address} is not an address of an RDMA device here ({errno}): choose one that `rdma link` and `ip address` show"
    )]
    Local {
        /// The address.
        address: IpAddr,
        /// The error of the bind.
        errno: Errno,
    },
    /// A port is in use.
    #[error("{0} is in use: end the program that listens there, or choose another port")]
    PortInUse(SocketAddr),
    /// The group cannot be joined.
    #[error("{address} cannot be joined ({errno}): choose a multicast address, such as 239.1.1.1")]
    Group {
        /// The address of the group.
        address: IpAddr,
        /// The error of the join.
        errno: Errno,
    },
    /// A connection cannot be made.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// The peer is of another version.
    #[error("the feed has {0}")]
    Wire(#[from] WireError),
    /// The RDMA device was removed.
    #[error("the RDMA device was removed: start again when it is back")]
    DeviceRemoved,
    /// The device has failed in another way.
    #[error("the RDMA device failed: {0}; look at the kernel's log")]
    Device(#[from] Errno),
    /// The QP of the group has failed.
    #[error("the QP of the multicast group failed: {0}; look at the kernel's log")]
    Port(#[from] PortError),
}

impl Error {
    /// The error of a bind or listen.
    #[must_use]
    pub fn local(address: IpAddr, error: cmid_epoll::proto::Error) -> Self {
        Error::Local { address, errno: error.errno() }
    }

    /// The error of a bind or listen to an address with a port.
    #[must_use]
    pub fn listen(address: SocketAddr, error: cmid_epoll::proto::Error) -> Self {
        match error.errno() {
            Errno::EADDRINUSE => Error::PortInUse(address),
            errno => Error::Local { address: address.ip(), errno },
        }
    }
}

impl From<cmid_epoll::proto::Error> for Error {
    fn from(error: cmid_epoll::proto::Error) -> Self {
        Error::Device(error.errno())
    }
}

/// The reason why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no connection to {peer}: {reason}")]
pub struct ConnectError {
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The reason.
    pub reason: ConnectReason,
}

/// The reason why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectReason {
    /// There is no route to the address.
    #[error("no RDMA device leads there ({0}): check the address")]
    NoRoute(Errno),
    /// Nothing listens at the port.
    #[error("nothing listens there: start `{0}` first, or check the port")]
    NothingListens(&'static str),
    /// The peer does not answer.
    #[error("no answer: check the address, and that `{0}` runs")]
    Silent(&'static str),
    /// The peer is of another version.
    #[error("the peer has protocol version {0}, this program {VERSION}: run the same version of ticker everywhere")]
    Version(u8),
    /// The peer is another program.
    #[error("another program listens there: use the port of `{0}`")]
    OtherProgram(&'static str),
    /// The peer has its maximum number of connections.
    #[error("`{0}` has its maximum number of connections: end one")]
    Full(&'static str),
    /// Another failure.
    #[error("{0}; look at the kernel's log")]
    Failed(Errno),
}

impl ConnectReason {
    /// The reason why a handshake for a service has failed.
    #[must_use]
    pub fn of(service: Service, error: &HandshakeError) -> Self {
        let server = service.server();
        match error {
            HandshakeError::TimedOut { .. } => ConnectReason::Silent(server),
            HandshakeError::Ended { error, .. } => match error.event.cm() {
                Some(CmEvent::AddrError | CmEvent::RouteError) => ConnectReason::NoRoute(error.errno),
                Some(CmEvent::Unreachable) => ConnectReason::Silent(server),
                Some(CmEvent::Rejected) => ConnectReason::of_reject(service, &error.event.private_data),
                Some(_) | None => ConnectReason::Failed(error.errno),
            },
            HandshakeError::Request(error) => match error.errno() {
                errno @ (Errno::ENODEV | Errno::EADDRNOTAVAIL | Errno::ENETUNREACH | Errno::EHOSTUNREACH) => {
                    ConnectReason::NoRoute(errno)
                }
                errno => ConnectReason::Failed(errno),
            },
            HandshakeError::Attach(_) | _ => ConnectReason::Failed(error.errno()),
        }
    }

    /// Returns the reason from the private data of a rejection: the hello of the peer, which the transport pads with
    /// zeros.
    fn of_reject(service: Service, private_data: &[u8]) -> Self {
        let (ours, server) = (service.hello(), service.server());
        let [name @ .., _version, _service] = ours;
        match private_data.first_chunk::<HELLO_LEN>() {
            Some(theirs) if *theirs == ours => ConnectReason::Full(server),
            Some([theirs @ .., version, _]) if *theirs == name && *version != VERSION => {
                ConnectReason::Version(*version)
            }
            Some([theirs @ .., _, _]) if *theirs == name => ConnectReason::OtherProgram(server),
            Some([0, ..]) | None => ConnectReason::NothingListens(server),
            Some(_) => ConnectReason::OtherProgram(server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_names_what_is_wrong() {
        let ours = Service::Replay.hello();
        let mut newer = ours;
        newer[6] = 9;
        let server = "ticker feed";
        for (data, reason) in [
            (&[][..], ConnectReason::NothingListens(server)),
            (&[0; 148], ConnectReason::NothingListens(server)),
            (&ours, ConnectReason::Full(server)),
            (&newer, ConnectReason::Version(9)),
            (&Service::Orders.hello(), ConnectReason::OtherProgram(server)),
            (b"something else", ConnectReason::OtherProgram(server)),
        ] {
            assert_eq!(ConnectReason::of_reject(Service::Replay, data), reason);
        }
    }
}
