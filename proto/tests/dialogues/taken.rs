//! `take_event` compared with `handle_event` and `poll_event`.

use std::hash::{Hash, Hasher};

use cmid_proto::{ChannelKey, Core, RawEvent};

/// Asserts that an event which is taken for a channel, for each channel of the core, is the one that a poll of the channel
/// would return, with the same core after it; and that an event which is not taken is handled as ever.
pub(crate) fn compare(core: &Core, on: ChannelKey, raw: RawEvent<&[u8]>) {
    let mut handled = core.clone();
    let admission = handled.handle_event(on, raw);
    for to in core.channels() {
        let mut taking = core.clone();
        let (result, event) = taking.take_event(on, &raw, to);
        assert_eq!(result, admission);
        let taken = result.map(|_| event);
        taking.check();
        let mut polled = handled.clone();
        let is_next = core.clone().poll_event(to).is_none();
        let next = if is_next { polled.poll_event(to) } else { None };
        match (taken, next) {
            // An event that is taken is no news for anybody else.
            (Ok(Some(event)), Some(next)) => {
                assert_eq!(event, next);
                assert_eq!(words(&taking), words(&polled), "{raw:?} was taken for {to}");
            }
            (Ok(Some(event)), None) => panic!("{event:?} was taken for {to}, and is not the next one"),
            (Ok(None) | Err(_), Some(next)) => panic!("{next:?} was not taken for {to}"),
            (Ok(None) | Err(_), None) => assert_eq!(taking, handled, "{raw:?} was not taken for {to}"),
        }
    }
}

/// What equality compares, except [`Core::activity`], which is the last.
fn words(core: &Core) -> Vec<u8> {
    let mut words = Words(Vec::new());
    core.hash(&mut words);
    let activity = words.0.split_off(words.0.len() - size_of::<u64>());
    assert_eq!(activity, core.activity().to_ne_bytes());
    words.0
}

/// Records what is hashed.
struct Words(Vec<u8>);

impl Hasher for Words {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
}
