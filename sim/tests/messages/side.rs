//! A program that exchanges messages over a QP.

use std::collections::VecDeque;

use cmid_proto::datapath::prelude::*;
use cmid_proto::datapath::{Access, Attaching, Caps, CreateError, Remote, SendWr, WcOpcode, WcStatus};
use cmid_proto::handshake::{Connected, Dial, DialTo, Incoming, Serve};
use cmid_proto::messages::{HEADER, Messages, MessagesConfig, MessagesError, NotSent, Received};
use cmid_proto::{
    Acks, ChannelKey, CmEvent, ConnParam, Drive, Error, IdKey, Limits, Next, PortSpace, PrivateData, Time,
};
use cmid_sim::{Cq, Host, Mr, Pd, Qp, SimDevice};

use crate::{PATIENCE, addr};

/// A packet that meets no receive ends the connection at once: no retry.
pub(crate) const PARAM: ConnParam = ConnParam {
    responder_resources: 1,
    initiator_depth: 1,
    flow_control: false,
    retry_count: 6,
    rnr_retry_count: 0,
    srq: false,
    qp_num: 0,
};

/// The slots for packets to send.
const SENDS: usize = 16;
const SEND: u64 = 1 << 32;
const READ: u64 = 1 << 33;

/// Why a side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both have said goodbye, and all sends have completed.
    Goodbye,
    Messages(MessagesError),
    Completion(WcStatus),
    Event(CmEvent),
}

/// The QP and its memory: receives, then slots to send from.
#[derive(Debug)]
pub(crate) struct Link {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    pd: Pd,
    free: Vec<usize>,
    packet: usize,
    /// Messages that the peer reads, and those that this side reads.
    offered: VecDeque<Mr>,
    reading: VecDeque<(Mr, usize)>,
}

impl Link {
    fn attach(device: &mut SimDevice, to: Attaching<'_>, config: MessagesConfig) -> Result<Link, CreateError> {
        let (window, packet) = (usize::from(config.window), config.packet as usize);
        let pd = device.alloc_pd(to.id())?;
        let cq = device.create_cq(to.id(), (2 * window + SENDS) as u32)?;
        let memory = vec![0; (window + SENDS) * packet];
        let mr = pd.register(memory, Access::LOCAL_WRITE)?;
        let caps = Caps { max_send_wr: (SENDS + window) as u32, max_recv_wr: window as u32, ..Caps::default() };
        let qp = device.create_qp(to, &pd, &cq, &cq, caps)?;
        let mut link = Link {
            qp,
            cq,
            mr,
            pd,
            free: (window..window + SENDS).collect(),
            packet,
            offered: VecDeque::new(),
            reading: VecDeque::new(),
        };
        (0..window).for_each(|slot| link.receive(slot));
        Ok(link)
    }

    pub(crate) fn receive(&mut self, slot: usize) {
        let at = slot * self.packet;
        self.qp.post_recv(slot as u64, self.mr.sge(at..at + self.packet)).unwrap();
    }

    fn read(&mut self, at: Remote, len: usize) {
        let mr = self.pd.register(vec![0; len], Access::LOCAL_WRITE).unwrap();
        self.qp.post_send(SendWr::read(READ, mr.sge(0..len), at)).unwrap();
        self.reading.push_back((mr, len));
    }

    /// Posts a packet. There is a free slot.
    pub(crate) fn send(&mut self, header: &[u8], message: &[u8]) {
        let slot = self.free.pop().unwrap();
        let at = slot * self.packet;
        let bytes = [header, message].concat();
        self.mr.write(at, &bytes).unwrap();
        self.qp.post_send(SendWr::send(SEND | slot as u64, self.mr.sge(at..at + bytes.len()))).unwrap();
    }
}

pub(crate) struct Side {
    pub(crate) drive: Drive<SimDevice>,
    channel: ChannelKey,
    config: MessagesConfig,
    listener: Option<IdKey>,
    dial: Option<Dial<Link>>,
    serve: Option<Serve<Link>>,
    pub(crate) connection: Option<(IdKey, Link, Messages)>,
    /// Messages to send, in order, and those that were received.
    pub(crate) outbox: VecDeque<Vec<u8>>,
    pub(crate) received: Vec<Vec<u8>>,
    /// Echo what arrives.
    pub(crate) echoes: bool,
    /// Post each of so many receives of messages together, and no sooner.
    pub(crate) holds: usize,
    held: Vec<usize>,
    /// Close when nothing is left to send; the side that echoes does so after the goodbye of the peer.
    pub(crate) closes: bool,
    pub(crate) end: Option<End>,
}

impl Side {
    fn new(host: &Host, now: Time, config: MessagesConfig) -> Self {
        let mut drive = Drive::new(host.device(), Limits::SINGLE);
        drive.set_now(now);
        let channel = drive.open_channel(Acks::OnDelivery).unwrap();
        Side {
            drive,
            channel,
            config,
            listener: None,
            dial: None,
            serve: None,
            connection: None,
            outbox: VecDeque::new(),
            received: Vec::new(),
            echoes: false,
            holds: 1,
            held: Vec::new(),
            closes: false,
            end: None,
        }
    }

    pub(crate) fn client(host: &Host, now: Time, config: MessagesConfig) -> Self {
        let mut side = Side::new(host, now, config);
        let private_data = PrivateData::copy_of(&config.hello());
        let to = DialTo { param: PARAM, private_data, ..DialTo::new(addr(1)) };
        side.dial = Some(Dial::start(&mut side.drive, Some(side.channel), &to, now.after(PATIENCE)).unwrap());
        side
    }

    pub(crate) fn server(host: &Host, now: Time, config: MessagesConfig) -> Self {
        let mut side = Side::new(host, now, config);
        let id = side.drive.create_id(Some(side.channel), PortSpace::Tcp).unwrap();
        side.drive.bind(id, addr(1)).and_then(|()| side.drive.listen(id, 1)).unwrap();
        side.listener = Some(id);
        side.echoes = true;
        side
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let messages = self.connection.as_ref().and_then(|(_, _, messages)| messages.timeout());
        self.drive.next_timeout().into_iter().chain(messages).min()
    }

    /// Handles what has happened. Returns whether anything has.
    pub(crate) fn turn(&mut self, now: Time) -> bool {
        self.drive.set_now(now);
        self.drive.readable_all();
        let mut is_busy = self.drive.run(64) == Next::Again;
        while let Some(event) = self.drive.next_event(self.channel) {
            is_busy = true;
            self.take(event);
        }
        if self.connection.is_some() {
            match self.exchange(now) {
                Ok(was_busy) => is_busy |= was_busy,
                Err(end) => self.ends(end),
            }
        }
        is_busy
    }

    fn take(&mut self, event: cmid_proto::Event) {
        let config = self.config;
        let attach = |drive: &mut Drive<SimDevice>, id| -> Result<Link, Error> {
            drive.attach_qp(id, |device, to| Link::attach(device, to, config))
        };
        let event = match Incoming::new(&mut self.drive, event) {
            Ok(incoming) => {
                let deadline = self.drive.within(PATIENCE);
                let serve = incoming.accept(&mut self.drive, PARAM, &config.hello(), deadline, attach).unwrap();
                self.serve = Some(serve);
                return;
            }
            Err(event) => event,
        };
        let kind = event.cm();
        let connected = match (&mut self.dial, &mut self.serve) {
            (Some(dial), _) if !dial.is_over() => dial.handle(&mut self.drive, event, attach).unwrap(),
            (_, Some(serve)) if !serve.is_over() => serve.handle(&mut self.drive, event).unwrap(),
            _ => {
                if let Some(kind @ (CmEvent::Disconnected | CmEvent::Unreachable)) = kind {
                    self.ends(End::Event(kind));
                }
                return;
            }
        };
        if let Some(Connected { id, attached, private_data, .. }) = connected {
            let messages = Messages::new(config, &private_data, self.drive.now()).unwrap();
            self.connection = Some((id, attached, messages));
        }
    }

    /// Receives, sends, and lets time pass.
    fn exchange(&mut self, now: Time) -> Result<bool, End> {
        let Some((_, link, messages)) = &mut self.connection else { return Ok(false) };
        let mut is_busy = false;
        while let Some(completion) = link.cq.poll_one().unwrap() {
            is_busy = true;
            if !completion.is_success() {
                return Err(End::Completion(completion.status));
            }
            if completion.wr_id == READ {
                let (mr, len) = link.reading.pop_front().unwrap();
                let mut message = vec![0; len];
                mr.read(0, &mut message).unwrap();
                if self.echoes {
                    self.outbox.push_back(message.clone());
                }
                self.received.push(message);
                messages.take();
                continue;
            }
            let slot = completion.wr_id as u32 as usize;
            if completion.opcode != WcOpcode::RECV {
                link.free.push(slot);
                continue;
            }
            let mut packet = vec![0; completion.byte_len as usize];
            link.mr.read(slot * link.packet, &mut packet).unwrap();
            match messages.receive(&packet, now).map_err(End::Messages)? {
                Received::Message(message) => {
                    self.received.push(message.to_vec());
                    if self.echoes {
                        self.outbox.push_back(message.to_vec());
                    }
                    self.held.push(slot);
                }
                Received::Offer { at, len } => {
                    self.held.push(slot);
                    link.read(at, len as usize);
                }
                Received::Taken => {
                    link.receive(slot);
                    // It may be deregistered: the peer has read it.
                    link.offered.pop_front().unwrap().deregister().unwrap();
                }
                Received::Control => link.receive(slot),
                Received::Goodbye => {
                    link.receive(slot);
                    self.closes = true;
                }
            }
        }
        if self.held.len() >= self.holds {
            messages.posted(self.held.len() as u32);
            self.held.drain(..).for_each(|slot| link.receive(slot));
        }
        messages.handle_timeout(now).map_err(End::Messages)?;
        // One slot is kept for packets without messages.
        while let (true, Some(message)) = (link.free.len() > 1, self.outbox.front()) {
            if message.len() > messages.message_max() {
                let mr = link.pd.register(message.clone(), Access::REMOTE_READ).unwrap();
                match messages.offer(message.len() as u64, mr.remote(0), now) {
                    Ok(packet) => link.send(&packet, &[]),
                    Err(NotSent::NoCredit) => break,
                    Err(error) => panic!("{error}"),
                }
                link.offered.push_back(mr);
                self.outbox.pop_front();
                continue;
            }
            match messages.send(message.len(), now) {
                Ok(header) => link.send(&header, message),
                Err(NotSent::NoCredit) => break,
                Err(error) => panic!("{error}"),
            }
            self.outbox.pop_front();
        }
        if self.closes && self.outbox.is_empty() {
            messages.close(now.after(PATIENCE));
        }
        while let (true, Some(header)) = (!link.free.is_empty(), messages.poll_control(now)) {
            assert_eq!(header.len(), HEADER);
            link.send(&header, &[]);
        }
        if messages.is_over() && link.free.len() == SENDS {
            return Err(End::Goodbye);
        }
        Ok(is_busy)
    }

    /// Ends the connection.
    pub(crate) fn ends(&mut self, end: End) {
        let Some((id, link, _)) = self.connection.take() else { return };
        self.end = Some(end);
        let _ = self.drive.disconnect(id, Time::NEVER);
        let _ = self.drive.detach_qp(id, |device, id| device.destroy_qp(id));
        drop(link);
        let _progress = self.drive.destroy(id, Time::NEVER).unwrap();
        if let Some(listener) = self.listener.take() {
            let _progress = self.drive.destroy(listener, Time::NEVER).unwrap();
        }
    }
}
