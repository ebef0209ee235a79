//! The methods of a drive, by request.

use cmid_proto::{Device, Drive, Error, IdKey, Progress, Request, Time};

/// Makes a request by its method.
pub(crate) fn make<D: Device>(
    drive: &mut Drive<D>,
    id: IdKey,
    request: Request<'_>,
    deadline: Time,
) -> Result<Progress, Error> {
    let done = match request {
        Request::Bind { addr } => drive.bind(id, addr),
        Request::ResolveAddr { src, dst } => drive.resolve_addr(id, src, dst, deadline),
        Request::ResolveRoute => drive.resolve_route(id, deadline),
        Request::Listen { backlog } => drive.listen(id, backlog),
        // QPs are the data path's, and none of a core's.
        Request::AttachQp | Request::DetachQp => Ok(()),
        Request::Connect { param, private_data } => drive.connect(id, param, private_data, deadline),
        Request::Accept { param, private_data } => drive.accept(id, param, private_data, deadline),
        Request::Reject { private_data, .. } => drive.reject(id, private_data),
        Request::Establish => drive.establish(id),
        Request::Disconnect => drive.disconnect(id, deadline),
        Request::Teardown => drive.teardown(id, deadline),
        Request::Notify => drive.notify_established(id),
        Request::GetRequest => drive.get_request(id, deadline),
        Request::Join { addr, send_only } => drive.join(id, addr, send_only, deadline).map(drop),
        Request::Leave { group } => return drive.leave(id, group),
        Request::SetOption { option } => drive.set_option(id, option),
        Request::SetEce { ece } => drive.set_ece(id, ece),
        Request::Migrate { to } => return drive.migrate(id, to, deadline),
        Request::Destroy => return drive.destroy(id, deadline),
        Request::DestroyNow => drive.destroy_now(id),
    };
    done.map(|()| Progress::Done)
}
