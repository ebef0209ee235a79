//! The hello in the private data.

use std::time::Duration;

use cmid_proto::messages::{HEADER, HELLO, HelloError, Messages, MessagesConfig};

use crate::{CONFIG, MS, ms};

fn meets(own: MessagesConfig, private_data: &[u8]) -> Result<(), HelloError> {
    Messages::new(own, private_data, ms(0)).map(drop)
}

#[test]
fn private_data_may_follow_it_and_the_transport_pads_it() {
    let private_data = [&CONFIG.hello()[..], b"more", &[0; 36]].concat();
    assert_eq!(meets(CONFIG, &private_data), Ok(()));
}

#[test]
fn each_misfit_has_its_error() {
    assert_eq!(meets(CONFIG, &CONFIG.hello()[..HELLO - 1]), Err(HelloError::NoHello));
    assert_eq!(meets(CONFIG, &[0; 56]), Err(HelloError::NoHello));
    let mut newer = CONFIG.hello();
    newer[4] = 2;
    assert_eq!(meets(CONFIG, &newer), Err(HelloError::Version(2)));
    assert_eq!(HelloError::Version(2).to_string(), "the peer has version 2 of the protocol, this side 1");
    let both = |config: MessagesConfig| (meets(CONFIG, &config.hello()), meets(config, &CONFIG.hello()));
    let window = |whose| Err(HelloError::Window { whose, window: 3 });
    assert_eq!(both(MessagesConfig { window: 3, ..CONFIG }), (window("the peer's"), window("own")));
    let packet = |whose| Err(HelloError::Packet { whose, packet: 16 });
    assert_eq!(both(MessagesConfig { packet: 16, ..CONFIG }), (packet("the peer's"), packet("own")));
    let alive = |whose| Err(HelloError::NoKeepAlive { whose });
    let none = MessagesConfig { keep_alive: Duration::from_micros(999), ..CONFIG };
    assert_eq!(both(none), (alive("the peer's"), alive("own")));
    let slow = MessagesConfig { keep_alive: MS * 251, ..CONFIG };
    let error = HelloError::KeepAlive { peer: MS * 251, silence: MS * 500 };
    assert_eq!(both(slow), (Err(error), Ok(())));
    assert_eq!(both(MessagesConfig { keep_alive: MS * 250, ..CONFIG }), (Ok(()), Ok(())));
}

#[test]
fn two_sides_with_the_default_send_what_a_receive_has_room_for() {
    let config = MessagesConfig::default();
    let messages = Messages::new(config, &config.hello(), ms(0)).unwrap();
    assert_eq!((messages.message_max(), messages.credits()), (config.packet as usize - HEADER, 30));
}
