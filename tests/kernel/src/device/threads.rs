//! Ids that are released from their device.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cmid_proto::datapath::{Attaching, SendWr, prelude::*};
use cmid_proto::{Call, CmEvent, Device, IdKey, Pollable};
use cmid_verbs::{Access, Completion, Handle, Verbs};

use crate::env::{CAPS, Side, channel_key, id_key, param};

/// Releases an id of a side, on a channel that only it uses.
fn take(side: &mut Side, id: IdKey) -> Handle {
    let own = channel_key(40, 2);
    let from = side.channel;
    side.ok(&Call::OpenChannel { channel: own });
    side.ok(&Call::Migrate { id, from, to: own });
    side.device.release(id, own).expect("it is alone on its channel")
}

/// The request arrives on one thread. The other accepts it, on a channel shared with another id, and receives data.
pub(crate) fn accepted_elsewhere() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    let c = client.end(id);
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest);
    let (sender, receiver) = mpsc::channel::<(Verbs, Handle)>();
    sender.send((server.device.sibling(), take(&mut server, request.id))).expect("a receiver");

    let worker = thread::spawn(move || {
        let (device, handle) = receiver.recv().expect("a handle");
        let mut side = Side::with(device);
        let _other = side.id();
        // The same bits as an id of the other device: keys are local to a device.
        let (id, own) = (id_key(9, 1), channel_key(1, 1));
        side.device.adopt(id, own, handle).expect("the keys are free");
        let to = side.channel;
        side.ok(&Call::Migrate { id, from: own, to });
        side.ok(&Call::CloseChannel { channel: own });

        let pd = side.device.alloc_pd(id).expect("alloc_pd");
        let mut cq = side.device.create_cq(id, 32).expect("create_cq");
        let mut qp = side.device.create_qp(Attaching::bare(id), &pd, &cq, &cq, CAPS).expect("create_qp");
        let memory = pd.register(vec![0; 64], Access::LOCAL_WRITE).expect("register");
        qp.post_recv(1, memory.sge(0..64)).expect("post_recv");
        side.ok(&Call::Accept { id, param: param() });
        assert_eq!(side.expect(CmEvent::Established).id, id);
        side.expect(CmEvent::Disconnected);
        let mut completion = [Completion::default()];
        assert_eq!(cq.poll(&mut completion), Ok(1));
        let mut text = [0; 5];
        memory.read(0, &mut text).expect("inside");
        (completion[0].byte_len, text)
    });

    client.expect(CmEvent::Established);
    server.quiet(0);
    let mut memory = c.pd.register(vec![0; 64], Access::empty()).expect("register");
    memory.write(0, b"hello").expect("inside");
    // Posts from a thread other than the device's.
    let (mut qp, mut cq) = (c.qp, c.cq);
    thread::spawn(move || {
        qp.post_send(SendWr::send(2, memory.sge(0..5))).expect("post_send");
        let mut completion = [Completion::default()];
        while cq.poll(&mut completion).expect("poll") == 0 {}
    })
    .join()
    .expect("the posting thread");
    client.ok(&Call::Disconnect { id });
    assert_eq!(worker.join().expect("the worker"), (5, *b"hello"));
    // The other thread dropped its device, which destroyed the id: the answer to the disconnect.
    client.expect(CmEvent::Disconnected);
}

/// Dropping a handle rejects a request, and ends a connection.
pub(crate) fn abandoned() {
    let (mut client, mut server) = (Side::new(), Side::new());
    let (_, addr) = server.listener();
    let id = client.resolved(addr);
    client.ok(&Call::Connect { id, param: param() });
    let request = server.expect(CmEvent::ConnectRequest);
    drop(take(&mut server, request.id));
    let answer = client.event_within(Duration::from_secs(10)).expect("an answer");
    assert_eq!((answer.kind, answer.status), (CmEvent::Rejected, 28));

    let (_c, s) = crate::env::connect(&mut client, &mut server, addr);
    let handle = take(&mut server, s.id);
    thread::spawn(move || drop(handle)).join().expect("the thread");
    client.expect(CmEvent::Disconnected);
    assert_eq!(server.device.counts(), (1, 1));
}
