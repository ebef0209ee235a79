//! Messages of the connection manager that are lost: a filter on what comes in at an end of a wire.
//!
//! What is dropped where it comes in is silently gone for the sender, as on a real wire; dropped where it goes out, rxe would
//! report a failed send.

use std::time::{Duration, Instant};

use cmid_conformance::{Check, Failure, Side};
use serde_json::Value;

use crate::Link;
use crate::shell::run;

/// A message of the IB CM (IBA volume 1, chapter 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The request to connect.
    Req,
    /// "I need more time."
    Mra,
    /// A refusal.
    Rej,
    /// The answer to a request.
    Rep,
    /// The answer has arrived.
    Rtu,
    /// The connection is to end.
    Dreq,
    /// It has ended.
    Drep,
    /// A lookup for datagrams.
    SidrReq,
    /// The answer to a lookup.
    SidrRep,
}

impl Message {
    /// The attribute of the management datagram (IBA 12.6, 12.11; `include/rdma/ib_cm.h`).
    #[must_use]
    pub const fn attribute(self) -> u16 {
        match self {
            Message::Req => 0x10,
            Message::Mra => 0x11,
            Message::Rej => 0x12,
            Message::Rep => 0x13,
            Message::Rtu => 0x14,
            Message::Dreq => 0x15,
            Message::Drep => 0x16,
            Message::SidrReq => 0x17,
            Message::SidrRep => 0x18,
        }
    }
}

/// A filter that drops messages at an end until it is lifted.
#[derive(Debug)]
#[must_use = "the filter stays until it is lifted"]
pub struct Loss {
    link: Link,
    end: Side,
}

impl Loss {
    /// From now on messages of this kind that come in at this end are lost.
    ///
    /// # Errors
    /// What tc(8) says.
    pub fn begin(link: Link, end: Side, message: Message) -> Check<Self> {
        let interface = link.interface(end);
        run("tc", &["qdisc", "add", "dev", &interface, "clsact"])?;
        let mut arguments = vec!["filter", "add", "dev", &interface, "ingress", "protocol", "ip", "u32"];
        let attribute = format!("{:#06x}", message.attribute());
        // Offsets from the IP header, which has no options: 20 bytes of it, 8 of UDP, 12 of BTH, 8 of DETH, and 16 into the
        // management datagram (IBA 9.2, 13.4.2; RoCEv2 is UDP to 4791). Sent to QP 1, of class 7, communication management.
        for (width, value, mask, at) in [
            ("u8", "17", "0xff", "9"),
            ("u16", "4791", "0xffff", "22"),
            ("u32", "0x000001", "0xffffff", "32"),
            ("u8", "0x07", "0xff", "49"),
            ("u16", &attribute, "0xffff", "64"),
        ] {
            arguments.extend(["match", width, value, mask, "at", at]);
        }
        arguments.extend(["action", "drop"]);
        run("tc", &arguments)?;
        Ok(Loss { link, end })
    }

    /// How many messages have been lost.
    ///
    /// # Errors
    /// What tc(8) says.
    pub fn count(&self) -> Check<u64> {
        let text = run("tc", &["-s", "-j", "filter", "show", "dev", &self.link.interface(self.end), "ingress"])?;
        let filters: Value = serde_json::from_str(&text).map_err(|error| Failure(format!("tc: {error}")))?;
        Ok(drops(&filters))
    }

    /// Waits until one has been lost.
    ///
    /// # Errors
    /// None is lost in this time.
    pub fn wait_for_one(&self, at_most: Duration) -> Check {
        self.wait_for(1, at_most)
    }

    /// Waits until so many have been lost.
    ///
    /// # Errors
    /// Fewer are lost in this time.
    pub fn wait_for(&self, count: u64, at_most: Duration) -> Check {
        let end = Instant::now() + at_most;
        while self.count()? < count {
            if Instant::now() > end {
                return Err(Failure(format!("fewer than {count} messages were lost in {at_most:?}")));
            }
            std::thread::sleep(Duration::from_millis(400));
        }
        Ok(())
    }

    /// Messages arrive again. Returns how many were lost.
    ///
    /// # Errors
    /// What tc(8) says; that none was lost, in which case nothing has been shown.
    pub fn lift(self) -> Check<u64> {
        let lost = self.count()?;
        run("tc", &["qdisc", "del", "dev", &self.link.interface(self.end), "clsact"])?;
        if lost == 0 { Err(Failure("no message was lost".into())) } else { Ok(lost) }
    }
}

/// The sum of all that is called "drops", wherever it is.
fn drops(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| if name == "drops" { value.as_u64().unwrap_or(0) } else { drops(value) })
            .sum(),
        Value::Array(values) => values.iter().map(drops).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_where_tc_has_them() {
        let text = r#"[{"kind":"u32"},{"options":{"actions":[{"stats":{"packets":3,"drops":2}}]}}]"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(drops(&value), 2);
    }
}
