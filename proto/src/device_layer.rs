//! Layers over a device: every method is forwarded unless the layer overrides it.

use core::net::SocketAddr;

use crate::call::{Call, Outcome};
use crate::device::Device;
use crate::errno::Errno;
use crate::event::{Ece, RawEvent};
use crate::key::{ChannelKey, IdKey};
use crate::transport::Transport;

/// A layer over a device. Every implementation is a [`Device`]; methods that it does not override are forwarded to
/// the inner device.
///
/// ```
/// use cmid_proto::{Call, Device, DeviceLayer, Outcome};
///
/// /// Counts the calls.
/// struct Counting<D> {
///     device: D,
///     calls: usize,
/// }
///
/// impl<D: Device> DeviceLayer for Counting<D> {
///     type Inner = D;
///
///     fn inner(&self) -> &D {
///         &self.device
///     }
///     fn inner_mut(&mut self) -> &mut D {
///         &mut self.device
///     }
///     fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
///         self.calls += 1;
///         self.device.call(call, private_data)
///     }
/// }
/// ```
pub trait DeviceLayer {
    /// The inner device.
    type Inner: Device;

    /// Returns the inner device.
    fn inner(&self) -> &Self::Inner;

    /// Returns the inner device.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// As [`Device::fetch`].
    ///
    /// # Errors
    /// As there.
    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.inner_mut().fetch(on, child)
    }

    /// As [`Device::call`].
    ///
    /// # Errors
    /// As there.
    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.inner_mut().call(call, private_data)
    }

    /// As [`Device::release`].
    ///
    /// # Errors
    /// As there.
    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<HandleOf<Self>, Errno> {
        self.inner_mut().release(id, channel)
    }

    /// As [`Device::adopt`].
    ///
    /// # Errors
    /// As there.
    fn on_adopt(&mut self, id: IdKey, channel: ChannelKey, handle: HandleOf<Self>) -> Outcome {
        self.inner_mut().adopt(id, channel, handle)
    }
}

/// `Inner`, `inner` and `inner_mut` of a layer whose inner device is in a field. For the layers of tests.
#[doc(hidden)]
#[macro_export]
macro_rules! layer_on {
    ($field:tt: $inner:ty) => {
        type Inner = $inner;
        fn inner(&self) -> &$inner {
            &self.$field
        }
        fn inner_mut(&mut self) -> &mut $inner {
            &mut self.$field
        }
    };
}

/// The handle of an id that the inner device has released.
type HandleOf<L> = <<L as DeviceLayer>::Inner as Device>::Handle;

impl<A: DeviceLayer> Device for A {
    type Handle = HandleOf<A>;

    fn transport(&mut self, id: IdKey) -> Option<Transport> {
        self.inner_mut().transport(id)
    }

    fn fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        self.on_fetch(on, child)
    }

    fn call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        self.on_call(call, private_data)
    }

    fn local_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.inner().local_addr(id)
    }

    fn peer_addr(&self, id: IdKey) -> Result<SocketAddr, Errno> {
        self.inner().peer_addr(id)
    }

    fn remote_ece(&self, id: IdKey) -> Result<Ece, Errno> {
        self.inner().remote_ece(id)
    }

    fn has_qp(&self, id: IdKey) -> Option<bool> {
        self.inner().has_qp(id)
    }

    fn discard_qp(&mut self, id: IdKey) {
        self.inner_mut().discard_qp(id);
    }

    fn release(&mut self, id: IdKey, channel: ChannelKey) -> Result<HandleOf<A>, Errno> {
        self.on_release(id, channel)
    }

    fn adopt(&mut self, id: IdKey, channel: ChannelKey, handle: HandleOf<A>) -> Outcome {
        self.on_adopt(id, channel, handle)
    }
}
