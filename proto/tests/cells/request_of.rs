//! A request of each kind.

use cmid_proto::{ChannelKey, CmOption, Ece, GroupKey, Request, RequestKind};

use crate::fixture::{BIND, LISTEN, REJECT, RESOLVE, accept, connect, group_addr, to};

/// A request of this kind, with a channel to migrate to and a group to leave; without a group, one that never was.
/// `None` for a release, which `submit` does not take.
pub(crate) fn request_of(
    request_kind: RequestKind,
    there: ChannelKey,
    group: Option<GroupKey>,
) -> Option<Request<'static>> {
    Some(match request_kind {
        RequestKind::Bind => BIND,
        RequestKind::ResolveAddr => RESOLVE,
        RequestKind::ResolveRoute => Request::ResolveRoute,
        RequestKind::Listen => LISTEN,
        RequestKind::AttachQp => Request::AttachQp,
        RequestKind::DetachQp => Request::DetachQp,
        RequestKind::Connect => connect(),
        RequestKind::Accept => accept(),
        RequestKind::Reject => REJECT,
        RequestKind::Establish => Request::Establish,
        RequestKind::Disconnect => Request::Disconnect,
        RequestKind::Teardown => Request::Teardown,
        RequestKind::Notify => Request::Notify,
        RequestKind::GetRequest => Request::GetRequest,
        RequestKind::Join => Request::Join { addr: group_addr(99), send_only: false },
        RequestKind::Leave => Request::Leave { group: group.or(GroupKey::from_parts(0, 0, 1))? },
        RequestKind::SetTos => Request::SetOption { option: CmOption::Tos(4) },
        RequestKind::ReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(true) },
        RequestKind::NoReuseAddr => Request::SetOption { option: CmOption::ReuseAddr(false) },
        RequestKind::SetAfOnly => Request::SetOption { option: CmOption::AfOnly(true) },
        RequestKind::SetAckTimeout => Request::SetOption { option: CmOption::AckTimeout(14) },
        RequestKind::SetEce => Request::SetEce { ece: Ece { vendor_id: 1, options: 2 } },
        RequestKind::Migrate => to(there),
        RequestKind::Release => return None,
        RequestKind::Destroy => Request::Destroy,
        RequestKind::DestroyNow => Request::DestroyNow,
    })
}
