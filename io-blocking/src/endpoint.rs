//! Endpoints: ids that are as far as their addresses lead (rdma_create_ep(3)).

use std::net::SocketAddr;
use std::time::Duration;

use cmid_proto::{CmOption, IdKey, Pollable, PortSpace, RequestKind, Time};

use crate::driver::Blocking;
use crate::error::Error;

/// What an endpoint is to be, as `addr_info` of the feature `verbs` found it (rdma_getaddrinfo(3)).
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Its services.
    pub port_space: PortSpace,
    /// The local address; `None` with a destination: that of the route.
    pub src: Option<SocketAddr>,
    /// The peer; `None`: the endpoint is to listen.
    pub dst: Option<SocketAddr>,
    /// Options of the id, set one after the other before its first address.
    pub settings: &'a [CmOption],
    /// How long it may take altogether. rdma_create_ep(3) has two seconds for the address and two for the route.
    pub timeout: Duration,
}

impl<D: Pollable> Blocking<D> {
    /// An id in synchronous mode: with a destination, its route is resolved and what is left is a QP and connect;
    /// with only a source it is bound and what is left is listen.
    ///
    /// # Errors
    /// [`Error::Core`] if the device could not begin (`EADDRNOTAVAIL`, `ENODEV`, `ENETUNREACH`, ...),
    /// [`Error::Ended`] if there is no way, [`Error::TimedOut`], [`Error::Cancelled`]. Nothing is left of it then.
    pub fn create_endpoint(&mut self, endpoint: &Endpoint<'_>) -> Result<IdKey, Error> {
        let deadline = self.drive().within(endpoint.timeout);
        let id = self.drive().create_id(None, endpoint.port_space)?;
        self.lead(id, endpoint, deadline).inspect_err(|_| {
            // The application does not know this id, so there is nothing to report.
            let _ = self.drive().destroy(id, Time::NEVER);
        })?;
        Ok(id)
    }

    fn lead(&mut self, id: IdKey, endpoint: &Endpoint<'_>, deadline: Time) -> Result<(), Error> {
        set(self, id, endpoint.settings)?;
        match (endpoint.src, endpoint.dst) {
            (src, Some(dst)) => {
                self.drive().resolve_addr(id, src, dst, deadline)?;
                self.finish(id, RequestKind::ResolveAddr)?;
                self.drive().resolve_route(id, deadline)?;
                self.finish(id, RequestKind::ResolveRoute)
            }
            (Some(src), None) => Ok(self.drive().bind(id, src)?),
            // Listen binds it.
            (None, None) => Ok(()),
        }
    }

    /// Destroys an endpoint, after `detach` has taken its QP off it, if it has one (rdma_destroy_ep(3)).
    ///
    /// # Errors
    /// [`Error::Core`]: what taking the QP off failed with, or the destruction.
    pub fn destroy_endpoint(
        &mut self,
        id: IdKey,
        detach: impl FnOnce(&mut D, IdKey) -> Result<(), cmid_proto::Errno>,
    ) -> Result<(), Error> {
        if self.drive().core().has_qp(id) {
            self.drive().detach_qp(id, |device, id| detach(device, id))?;
        }
        self.drive().destroy(id, Time::NEVER)?;
        Ok(())
    }
}

/// Sets options of an id.
pub(crate) fn set<D: Pollable>(driver: &mut Blocking<D>, id: IdKey, settings: &[CmOption]) -> Result<(), Error> {
    for &option in settings {
        driver.drive().set_option(id, option)?;
    }
    Ok(())
}
