//! A request that outlives the step that made it.

use cmid_proto::Request;

/// The request with private data of its own. It lives as long as the test.
pub(crate) fn owned(request: Request<'_>) -> Request<'static> {
    let keep = |data: &[u8]| &*Box::leak(data.to_vec().into_boxed_slice());
    match request {
        Request::Bind { addr } => Request::Bind { addr },
        Request::ResolveAddr { src, dst } => Request::ResolveAddr { src, dst },
        Request::ResolveRoute => Request::ResolveRoute,
        Request::Listen { backlog } => Request::Listen { backlog },
        Request::AttachQp => Request::AttachQp,
        Request::DetachQp => Request::DetachQp,
        Request::Connect { param, private_data } => Request::Connect { param, private_data: keep(private_data) },
        Request::Accept { param, private_data } => Request::Accept { param, private_data: keep(private_data) },
        Request::Reject { reason, private_data } => Request::Reject { reason, private_data: keep(private_data) },
        Request::Establish => Request::Establish,
        Request::Disconnect => Request::Disconnect,
        Request::Teardown => Request::Teardown,
        Request::Notify => Request::Notify,
        Request::GetRequest => Request::GetRequest,
        Request::Join { addr, send_only } => Request::Join { addr, send_only },
        Request::Leave { group } => Request::Leave { group },
        Request::SetOption { option } => Request::SetOption { option },
        Request::SetEce { ece } => Request::SetEce { ece },
        Request::Migrate { to } => Request::Migrate { to },
        Request::Destroy => Request::Destroy,
        Request::DestroyNow => Request::DestroyNow,
    }
}
