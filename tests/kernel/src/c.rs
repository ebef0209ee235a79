//! What programs have that make librdmacm's own calls.

use std::ptr;

use libc::{c_int, sockaddr_in};
use rdma_sys::{
    rdma_cm_id, rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_event_channel,
    rdma_port_space,
};

pub(crate) struct Channel(pub(crate) *mut rdma_event_channel);

impl Channel {
    pub(crate) fn open() -> Self {
        // SAFETY: takes no arguments.
        let channel = unsafe { rdma_create_event_channel() };
        assert!(!channel.is_null(), "rdma_create_event_channel: {}", std::io::Error::last_os_error());
        Channel(channel)
    }

    pub(crate) fn id(&self) -> *mut rdma_cm_id {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is open, and there is a place for the result.
        check("rdma_create_id", unsafe {
            rdma_create_id(self.0, &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP)
        });
        id
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: it is open, and none of its ids is used again.
        unsafe { rdma_destroy_event_channel(self.0) };
    }
}

pub(crate) fn address(ip: [u8; 4], port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
        sin_zero: [0; 8],
    }
}

pub(crate) fn check(call: &str, returned: c_int) {
    assert_eq!(returned, 0, "{call}: {}", std::io::Error::last_os_error());
}
