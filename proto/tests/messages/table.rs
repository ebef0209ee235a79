//! The machine follows its table: each cell that an input leads to.

use cmid_proto::Time;
use cmid_proto::messages::rules::{Cell, Input, MESSAGES};
use cmid_proto::messages::{Messages, MessagesError, NotSent, Stage};

use crate::{ms, packet, pair};

/// A machine in this state, and its peer.
fn at(stage: Stage) -> [Messages; 2] {
    let [mut own, mut peer] = pair();
    let peer_closes = |own: &mut Messages, peer: &mut Messages| {
        peer.close(Time::NEVER);
        own.receive(&peer.poll_control(ms(0)).unwrap(), ms(0)).unwrap();
    };
    let own_closes = |own: &mut Messages| {
        own.close(Time::NEVER);
        own.poll_control(ms(0)).unwrap();
    };
    match stage {
        Stage::Open => {}
        Stage::Closing => own.close(Time::NEVER),
        Stage::Closed => own_closes(&mut own),
        Stage::PeerClosed => peer_closes(&mut own, &mut peer),
        Stage::Answering => {
            peer_closes(&mut own, &mut peer);
            own.close(Time::NEVER);
        }
        Stage::Over => {
            peer_closes(&mut own, &mut peer);
            own_closes(&mut own);
        }
        Stage::Failed => _ = own.receive(&[], ms(0)).unwrap_err(),
    }
    assert_eq!(own.stage(), stage);
    [own, peer]
}

/// A packet of the peer, numbered as the next one, whatever the peer may send.
fn forged(peer: &mut Messages, kind: u8, message: &[u8]) -> Vec<u8> {
    // The peer that has closed is not asked; its next packet is number 1, after the goodbye.
    let number = u8::from(peer.stage() != Stage::Open);
    let len = message.len() as u8;
    packet([1, kind, 0, 0, 0, 0, 0, len, 0, 0, 0, number, 0, 0, 0, 8], message)
}

#[test]
fn each_input_in_each_state_does_what_the_table_says() {
    for stage in Stage::ALL {
        for input in Input::ALL {
            let [mut own, mut peer] = at(stage);
            let cell = MESSAGES[stage.index()][input.index()];
            let what = format!("{input} while {stage}: {cell:?}");
            let received = match input {
                Input::Send => {
                    let sent = own.send(3, ms(0));
                    assert_eq!(sent.err(), (cell == Cell::Refuse).then_some(NotSent::Closed), "{what}");
                    Ok(())
                }
                Input::Close => {
                    own.close(Time::NEVER);
                    Ok(())
                }
                Input::SendGoodbye => {
                    let goodbye = own.poll_control(ms(0));
                    assert_eq!(goodbye.map(|header| header[1]), matches!(cell, Cell::Go(_)).then_some(3), "{what}");
                    Ok(())
                }
                Input::Message => own.receive(&forged(&mut peer, 1, b"abc"), ms(0)).map(drop),
                Input::Control => own.receive(&forged(&mut peer, 2, b""), ms(0)).map(drop),
                Input::Goodbye => own.receive(&forged(&mut peer, 3, b""), ms(0)).map(drop),
                Input::Fault => {
                    assert!(own.receive(&[9], ms(0)).is_err());
                    Ok(())
                }
            };
            let (next, result) = match cell {
                Cell::Go(next) => (next, Ok(())),
                Cell::Wrong => (Stage::Failed, Err(MessagesError::AfterGoodbye)),
                Cell::Refuse | Cell::Ignore if stage == Stage::Failed => {
                    let arrives = matches!(input, Input::Message | Input::Control | Input::Goodbye);
                    (stage, if arrives { Err(MessagesError::Short(0)) } else { Ok(()) })
                }
                Cell::Refuse | Cell::Ignore => (stage, Ok(())),
            };
            assert_eq!((own.stage(), received), (next, result), "{what}");
            assert_eq!(own.timeout().is_none(), matches!(next, Stage::Over | Stage::Failed), "{what}");
            assert_eq!(own.is_over(), next == Stage::Over);
        }
    }
}
