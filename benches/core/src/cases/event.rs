//! A raw event in, the application's event out, its ack.

use cmid_proto::{CmEvent, EventKind, IdKey, RawEvent, State};

use super::Case;
use super::life::{REPLY, lead_to_connecting};
use crate::level::Level;
use crate::stage::Stage;

/// An event that changes nothing: ADDR_CHANGE, of a connection whose network interface fails over.
#[derive(Debug)]
pub struct Told {
    ids: Vec<IdKey>,
    at: usize,
}

impl<L: Level> Case<L> for Told {
    type Input = L::Arriving;
    type Output = EventKind;

    fn new(stage: &mut Stage<L>) -> Self {
        Told { ids: (0..4).map(|_| stage.connected()).collect(), at: 0 }
    }

    fn prepare(&mut self, stage: &mut Stage<L>) -> L::Arriving {
        self.at = (self.at + 1) % self.ids.len();
        stage.level.arrive(RawEvent::new(self.ids[self.at], CmEvent::AddrChange))
    }

    #[inline(always)]
    fn step(&mut self, stage: &mut Stage<L>, raw: L::Arriving) -> EventKind {
        stage.level.tell(stage.channel, stage.channel, raw)
    }

    fn check(&mut self, stage: &mut Stage<L>, kind: EventKind) {
        assert_eq!(kind, EventKind::Cm(CmEvent::AddrChange));
        let id = self.ids[self.at];
        assert_eq!((stage.state(id), stage.level.core().owed(id)), (State::Connected, 0));
    }

    fn leave(self, stage: &mut Stage<L>) {
        self.ids.into_iter().for_each(|id| stage.renew(id));
    }
}

macro_rules! once {
    ($($(#[$doc:meta])* $name:ident: $prepare:expr, $raw:expr => $after:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name {
                id: Option<IdKey>,
            }

            impl<L: Level> Case<L> for $name {
                type Input = L::Arriving;
                type Output = EventKind;

                fn new(_: &mut Stage<L>) -> Self {
                    $name { id: None }
                }

                fn prepare(&mut self, stage: &mut Stage<L>) -> L::Arriving {
                    let id = stage.choose();
                    self.id = Some(id);
                    let prepare: fn(&mut Stage<L>, IdKey) = $prepare;
                    prepare(stage, id);
                    stage.level.arrive($raw(id))
                }

                #[inline(always)]
                fn step(&mut self, stage: &mut Stage<L>, raw: L::Arriving) -> EventKind {
                    stage.level.tell(stage.channel, stage.channel, raw)
                }

                fn check(&mut self, stage: &mut Stage<L>, kind: EventKind) {
                    let id = self.id.take().expect("prepared");
                    assert_eq!(kind, EventKind::Cm($raw(id).kind));
                    assert_eq!((stage.state(id), stage.level.core().owed(id)), ($after, 0));
                    assert!(stage.level.core().poll_timeout().is_none(), "no deadline is left");
                    stage.renew(id);
                }
            }
        )+
    };
}

once! {
    /// One that changes the state: DISCONNECTED, from the peer.
    Changed: super::life::lead_to_connected, |id| RawEvent::new(id, CmEvent::Disconnected) => State::PeerClosed;
    /// One with private data (CONNECT_RESPONSE, 196 bytes) that changes the state and ends the deadline of a connect.
    Replied: lead_to_connecting, |id| RawEvent { private_data: &REPLY, ..RawEvent::new(id, CmEvent::ConnectResponse) }
        => State::Responded;
}
