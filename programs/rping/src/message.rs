//! The messages of rping: the buffers to read from and to write to.

use cmid_proto::datapath::Remote;

/// 16 bytes, big-endian: a 64-bit address, a 32-bit key, a 32-bit length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) at: Remote,
    pub(crate) len: u32,
}

impl Message {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn encode(self) -> [u8; Message::LEN] {
        let bits = u128::from(self.at.addr) << 64 | u128::from(self.at.rkey) << 32 | u128::from(self.len);
        bits.to_be_bytes()
    }

    pub(crate) fn decode(bytes: [u8; Message::LEN]) -> Self {
        let bits = u128::from_be_bytes(bytes);
        Message { at: Remote { addr: (bits >> 64) as u64, rkey: (bits >> 32) as u32 }, len: bits as u32 }
    }
}

/// Returns the data of a ping: its number, letters that start one letter later in each ping, a zero.
pub(crate) fn ping_data(number: u64, len: usize) -> Vec<u8> {
    let letters = (b'A'..=b'z').cycle().skip((number % 58) as usize);
    let mut data: Vec<u8> = format!("rdma-ping-{number}: ").into_bytes().into_iter().chain(letters).take(len).collect();
    if let Some(last) = data.last_mut() {
        *last = 0;
    }
    data
}

/// Returns the data up to its first zero, as text.
pub(crate) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_address_key_length_in_network_order() {
        let message = Message { at: Remote { addr: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c }, len: 0x0d0e_0f10 };
        assert_eq!(message.encode(), std::array::from_fn(|i| i as u8 + 1));
        assert_eq!(Message::decode(message.encode()), message);
    }

    #[test]
    fn a_ping_has_its_number_letters_and_a_zero() {
        assert_eq!(ping_data(1, 27), b"rdma-ping-1: BCDEFGHIJKLMN\0");
        assert_eq!(text(&ping_data(60, 64)).len(), 63);
    }
}
