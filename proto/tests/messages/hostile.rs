//! Hostile peers: never a panic, and always an error that names the cause.

use cmid_proto::Time;
use cmid_proto::messages::{HEADER, Messages, MessagesError, Received, Stage};

use crate::{CONFIG, deliver, ms, packet, pair};

/// The header of the first packet: a message of 3 bytes.
const GOOD: [u8; HEADER] = [1, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 8];

fn with(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut header = GOOD;
    changes.iter().for_each(|&(at, byte)| header[at] = byte);
    packet(header, b"abc")
}

#[test]
fn each_wrong_packet_has_its_error() {
    let control = |len: u8| vec![1, 2, 0, 0, 0, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, 8];
    let granted = |granted| MessagesError::Granted { granted, credits: 8, window: 8 };
    let wrong = [
        (vec![], MessagesError::Short(0)),
        (GOOD[..15].to_vec(), MessagesError::Short(15)),
        (with(&[(0, 0)]), MessagesError::Version(0)),
        (with(&[(0, 2)]), MessagesError::Version(2)),
        (with(&[(1, 0)]), MessagesError::Kind(0)),
        (with(&[(1, 6)]), MessagesError::Kind(6)),
        // An offer has 20 bytes, and an answer none; and nothing was offered.
        (with(&[(1, 4)]), MessagesError::Length { header: 3, received: 3 }),
        (with(&[(1, 5)]), MessagesError::Length { header: 3, received: 3 }),
        (vec![1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8], MessagesError::NotOffered),
        (with(&[(3, 1)]), MessagesError::Reserved(1)),
        (with(&[(7, 4)]), MessagesError::Length { header: 4, received: 3 }),
        (with(&[(4, 255)]), MessagesError::Length { header: 0xff00_0003, received: 3 }),
        ([control(0), vec![0]].concat(), MessagesError::Length { header: 0, received: 1 }),
        (with(&[(1, 2)]), MessagesError::Length { header: 3, received: 3 }),
        (with(&[(11, 1)]), MessagesError::Number { expected: 0, received: 1 }),
        // All receives are permitted already.
        (with(&[(15, 9)]), granted(1)),
        (with(&[(15, 7)]), granted(u32::MAX)),
    ];
    for (bytes, error) in wrong {
        let [mut one, _] = pair();
        assert_eq!(one.receive(&bytes, ms(0)), Err(error), "{bytes:?}");
        assert_eq!(one.stage(), Stage::Failed);
        // It stays so, also with a correct packet.
        assert_eq!(one.receive(&with(&[]), ms(0)), Err(error));
        assert_eq!(one.handle_timeout(ms(0)), Err(error));
    }
    let [mut one, _] = pair();
    assert_eq!(one.receive(&with(&[]), ms(0)), Ok(Received::Message(b"abc")));
    assert_eq!(one.receive(&with(&[]), ms(0)), Err(MessagesError::Number { expected: 1, received: 0 }));
}

#[test]
fn more_packets_than_receives_are_an_error() {
    let [mut one, _] = pair();
    for number in 0..8 {
        one.receive(&with(&[(11, number)]), ms(0)).unwrap();
    }
    assert_eq!(one.receive(&with(&[(11, 8)]), ms(0)), Err(MessagesError::Overrun));
}

/// Any bytes at all, and a correct dialogue in which one byte is another one.
#[test]
fn any_bytes_are_a_packet_or_an_error() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        let [mut one, mut other] = pair();
        (0..random.usize(0..5)).for_each(|_| deliver(&mut other, &mut one, b"data", random.bool()));
        let mut bytes: Vec<u8> = if random.bool() {
            let len = random.usize(0..40);
            std::iter::repeat_with(|| random.u8(..)).take(len).collect()
        } else {
            packet(other.send(4, ms(0)).unwrap(), b"data")
        };
        if !bytes.is_empty() {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        match one.receive(&bytes, ms(0)) {
            Ok(received) => {
                // The message is what follows the header, and the credits stay within the window.
                assert!(matches!(received, Received::Message(message) if message == &bytes[HEADER..]));
                assert!(one.credits() <= u32::from(CONFIG.window) - 2);
            }
            Err(error) => _ = seen.insert(error.to_string().split(char::is_numeric).next().map(str::to_owned)),
        }
        one.close(Time::NEVER);
        let _ = (one.poll_control(ms(0)), one.handle_timeout(ms(0)), one.send(1, ms(0)));
    }
    assert!(seen.len() >= 6, "{} kinds of errors", seen.len());
}

#[test]
fn any_bytes_are_a_hello_or_an_error() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut met = 0;
    for _ in 0..20_000 {
        let mut hello = CONFIG.hello().to_vec();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..hello.len());
            hello[at] = random.u8(..);
        }
        hello.truncate(random.usize(0..20));
        if let Ok(mut one) = Messages::new(CONFIG, &hello, ms(0)) {
            met += 1;
            // A window and a packet length that the peer does not have are its own loss.
            let len = one.message_max();
            assert!(one.credits() > 0 && one.send(len, ms(0)).is_ok());
        }
    }
    assert!(met > 100);
}
