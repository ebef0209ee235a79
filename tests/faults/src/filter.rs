//! Loses messages of the connection manager, by a filter on the ingress of an end of a link.
//!
//! The sender does not notice a message that is dropped on ingress, as on a real link. If it were dropped on egress,
//! rxe would report a failed send.

use std::time::{Duration, Instant};

use cmid_harness::shell::run;
use cmid_harness::{Check, Failure, Side};
use serde_json::Value;

use crate::Link;

/// A message of the IB CM (IBA volume 1, chapter 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The request to connect.
    Req,
    /// More time is needed (message receipt acknowledgement).
    Mra,
    /// A refusal.
    Rej,
    /// The answer to a request.
    Rep,
    /// The answer has arrived (ready to use).
    Rtu,
    /// A request to disconnect.
    Dreq,
    /// The answer to a request to disconnect.
    Drep,
    /// A lookup for datagrams.
    SidrReq,
    /// The answer to a lookup.
    SidrRep,
}

impl Message {
    /// The attribute ID of the management datagram (IBA 12.6, 12.11; `include/rdma/ib_cm.h`).
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

/// A filter that drops messages at an end until it is removed.
#[derive(Debug)]
#[must_use = "the filter stays until it is lifted"]
pub struct Loss {
    link: Link,
    end: Side,
}

impl Loss {
    /// Drops incoming messages of this kind at this end from now on.
    ///
    /// # Errors
    /// The error of tc(8).
    pub fn begin(link: Link, end: Side, message: Message) -> Check<Self> {
        let interface = link.interface(end);
        run("tc", &["qdisc", "add", "dev", &interface, "clsact"])?;
        let mut arguments = vec!["filter", "add", "dev", &interface, "ingress", "protocol", "ip", "u32"];
        let attribute = format!("{:#06x}", message.attribute());
        // Offsets from the IP header, which has no options: 20 bytes of IP, 8 of UDP, 12 of BTH, 8 of DETH, and 16
        // into the management datagram (IBA 9.2, 13.4.2; RoCEv2 is UDP to port 4791). Matches QP 1 and class 7,
        // communication management.
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

    /// Returns how many messages have been dropped.
    ///
    /// # Errors
    /// The error of tc(8).
    pub fn count(&self) -> Check<u64> {
        let text = run("tc", &["-s", "-j", "filter", "show", "dev", &self.link.interface(self.end), "ingress"])?;
        let filters: Value = serde_json::from_str(&text).map_err(|error| Failure(format!("tc: {error}")))?;
        Ok(drops(&filters))
    }

    /// Waits until one message has been dropped.
    ///
    /// # Errors
    /// None is dropped in this time.
    pub fn wait_for_one(&self, at_most: Duration) -> Check {
        self.wait_for(1, at_most)
    }

    /// Waits until `count` messages have been dropped.
    ///
    /// # Errors
    /// Fewer are dropped in this time.
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

    /// Removes the filter. Returns how many messages were dropped.
    ///
    /// # Errors
    /// The error of tc(8); or no message was dropped, so the scenario shows nothing.
    pub fn lift(self) -> Check<u64> {
        let lost = self.count()?;
        run("tc", &["qdisc", "del", "dev", &self.link.interface(self.end), "clsact"])?;
        if lost == 0 { Err(Failure("no message was lost".into())) } else { Ok(lost) }
    }
}

/// The sum of all fields named "drops", at any depth.
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
