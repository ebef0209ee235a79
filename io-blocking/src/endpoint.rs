//! Endpoints: ids with resolved or bound addresses (rdma_create_ep(3)).

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{CmOption, IdKey, Observer, Pollable, PortSpace, RequestKind, Time};

use crate::driver::Blocking;
use crate::error::Error;

/// The parameters of an endpoint, in place of the result of rdma_getaddrinfo(3).
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// The port space.
    pub port_space: PortSpace,
    /// The local address; `None` with a destination selects the one of the route.
    pub src: Option<SocketAddr>,
    /// The peer; `None` for an endpoint that listens.
    pub dst: Option<SocketAddr>,
    /// Options of the id, set in order before its first address.
    pub settings: &'a [CmOption],
    /// The time limit of both resolves. rdma_create_ep(3) has two seconds for the address and two for the route.
    pub timeout: Duration,
}

impl<D: Pollable, O: Observer> Blocking<D, O> {
    /// Creates an id in synchronous mode. With a destination, resolves the route; attach a QP and connect next. With
    /// only a source, binds the id; listen next.
    ///
    /// # Errors
    /// [`Error::Core`] if the device could not start a request (such as `EADDRNOTAVAIL`, `ENODEV`, `ENETUNREACH`),
    /// [`Error::Ended`] if there is no route, [`Error::TimedOut`], [`Error::Cancelled`]. After an error the id is
    /// destroyed.
    #[doc(alias = "rdma_create_ep")]
    pub fn create_endpoint(&mut self, endpoint: &Endpoint<'_>) -> Result<IdKey, Error> {
        let deadline = self.drive().within(endpoint.timeout);
        let id = self.drive().create_id(None, endpoint.port_space)?;
        self.lead(id, endpoint, deadline).inspect_err(|_| {
            // Reports the error of the endpoint and not that of the destroy.
            let _ = self.drive().destroy(id, Time::NEVER);
        })?;
        Ok(id)
    }

    fn lead(&mut self, id: IdKey, endpoint: &Endpoint<'_>, deadline: Time) -> Result<(), Error> {
        endpoint.settings.iter().try_for_each(|&option| self.drive().set_option(id, option))?;
        match (endpoint.src, endpoint.dst) {
            (src, Some(dst)) => {
                self.drive().resolve_addr(id, src, dst, deadline)?;
                self.finish(id, RequestKind::ResolveAddr)?;
                self.drive().resolve_route(id, deadline)?;
                self.finish(id, RequestKind::ResolveRoute)
            }
            (Some(src), None) => Ok(self.drive().bind(id, src)?),
            // The listen binds it.
            (None, None) => Ok(()),
        }
    }

    /// Calls `detach`, which detaches the QP if there is one, then destroys the endpoint (rdma_destroy_ep(3)).
    ///
    /// # Errors
    /// [`Error::Core`] with the error of `detach` or of the destroy.
    #[doc(alias = "rdma_destroy_ep")]
    pub fn destroy_endpoint(
        &mut self,
        id: IdKey,
        detach: impl FnOnce(&mut D, IdKey) -> Result<(), cmid_proto::Errno>,
    ) -> Result<(), Error> {
        if self.drive().core().id_info(id).is_some_and(|it| it.has_qp) {
            self.drive().detach_qp(id, |device, id| detach(device, id))?;
        }
        self.drive().destroy(id, Time::NEVER)?;
        Ok(())
    }
}
