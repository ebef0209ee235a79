//! Compares each event that the device reports with the bytes that the kernel wrote.

use std::cell::RefCell;
use std::rc::Rc;

use cmid_proto::{Call, ChannelKey, CmEvent, Device, DeviceLayer, Ece, Errno, IdKey, Outcome, RawEvent};
use cmid_verbs::{KernelCm, KernelHandle};

use super::answers::{EVENT, Kernel, long, word};

/// The maximum number of events that one fetch reads.
const READS_MAX: usize = 16;

/// The device, judged.
pub(super) struct Judged {
    pub(super) device: KernelCm,
    pub(super) kernel: Rc<RefCell<Kernel>>,
    /// The peer's ECE of the event that was reported last.
    pub(super) ece: Option<(IdKey, Ece)>,
}

impl DeviceLayer for Judged {
    cmid_proto::layer_on!(device: KernelCm);

    fn on_fetch(&mut self, on: ChannelKey, child: IdKey) -> Result<Option<RawEvent<&[u8]>>, Errno> {
        let mut kernel = self.kernel.borrow_mut();
        kernel.events.clear();
        kernel.destroyed.clear();
        drop(kernel);
        let result = self.device.fetch(on, child);
        let kernel = self.kernel.borrow();
        assert!(kernel.events.len() <= READS_MAX);
        let unreported = match &result {
            Ok(Some(event)) => {
                let (last, others) = kernel.events.split_last().expect("an event was read");
                judge(event, child, last);
                self.ece = matches!(event.kind, CmEvent::ConnectRequest | CmEvent::ConnectResponse)
                    .then(|| (event.id, Ece { vendor_id: word(last, 328), options: word(last, 332) }));
                others
            }
            Ok(None) => &kernel.events,
            Err(errno) => {
                assert!(![Errno::EAGAIN, Errno::EINTR].contains(errno), "{errno} is no error of a fetch");
                &kernel.events
            }
        };
        for event in unreported {
            let is_request = CmEvent::from_code(word(event, 12)) == CmEvent::ConnectRequest;
            let stranger = !kernel.knows(long(event, 0));
            let destroyed = kernel.destroyed.contains(&word(event, 8));
            assert!(destroyed || !(is_request && stranger), "the id of a stray request is not destroyed");
        }
        result
    }

    fn on_call(&mut self, call: &Call, private_data: &[u8]) -> Outcome {
        if let Some((id, ece)) = self.ece.take() {
            assert_eq!(self.device.remote_ece(id), Ok(ece));
        }
        self.device.call(call, private_data)
    }

    fn on_release(&mut self, id: IdKey, channel: ChannelKey) -> Result<KernelHandle, Errno> {
        self.ece = None;
        self.device.release(id, channel)
    }
}

/// Checks that a reported event is what these bytes say.
fn judge(event: &RawEvent<&[u8]>, child: IdKey, bytes: &[u8; EVENT]) {
    let code = word(bytes, 12);
    let is_request = code == CmEvent::ConnectRequest.code();
    assert_eq!((event.id == child, event.listener.is_some()), (is_request, is_request), "{event:?}");
    // A lookup whose device has gone before its event is read.
    let lookups = [(CmEvent::AddrResolved, CmEvent::AddrError), (CmEvent::RouteResolved, CmEvent::RouteError)];
    let is_undone = event.status == -1 && lookups.contains(&(CmEvent::from_code(code), event.kind));
    if event.kind == CmEvent::MulticastError {
        // Also for a join that the device cannot complete.
        assert!([CmEvent::MulticastJoin, CmEvent::MulticastError].contains(&CmEvent::from_code(code)), "{event:?}");
    } else if !is_undone {
        assert_eq!(event.kind.code(), code, "{event:?}");
    }
    let joins = code == CmEvent::MulticastJoin.code();
    assert!(joins || is_undone || event.status == word(bytes, 16).cast_signed(), "{event:?}");
    // `struct rdma_ucm_conn_param` and `struct rdma_ucm_ud_param`, from byte 20.
    let (connected, datagram) = (private(bytes, 8, 264), private(bytes, 40, 296));
    let data = event.private_data;
    let is_argument = code == CmEvent::User.code() && data == &bytes[20..28];
    assert!(data.is_empty() || is_argument || data == connected || data == datagram, "{event:?}");
    let param = event.param.0;
    if event.param != Default::default() {
        assert_eq!(data, connected, "{event:?}");
        let bytes = &bytes[20..];
        assert_eq!(
            (param.qp_num, param.responder_resources, param.initiator_depth, param.retry_count, param.rnr_retry_count),
            (word(bytes, 0), bytes[266], bytes[267], bytes[269], bytes[270]),
        );
        assert_eq!((param.srq, param.flow_control), (bytes[265] != 0, bytes[268] != 0));
    }
    if let Some(datagram) = event.datagram {
        let bytes = &bytes[20..];
        assert_eq!((datagram.qp_num, datagram.qkey), (word(bytes, 0), word(bytes, 4)));
        let path = datagram.path;
        // `struct ib_uverbs_ah_attr`, from byte 28.
        assert_eq!(path.grh.is_some(), bytes[8 + 29] != 0);
        assert_eq!((path.sl, path.src_path_bits, path.static_rate, path.port_num), {
            let ah = &bytes[8 + 26..];
            (ah[0], ah[1], ah[2], ah[4])
        });
        if let Some(grh) = path.grh {
            assert_eq!((&grh.dgid[..], grh.flow_label), (&bytes[8..24], word(bytes, 24)));
            assert_eq!((grh.sgid_index, grh.hop_limit, grh.traffic_class), (bytes[28], bytes[29], bytes[30]));
        }
    }
}

/// Private data of the union's structure, and its length's offset.
fn private(bytes: &[u8; EVENT], at: usize, len: usize) -> &[u8] {
    &bytes[20 + at..][..usize::from(bytes[20 + len])]
}
