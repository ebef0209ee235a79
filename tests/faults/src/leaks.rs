//! Counts what the process holds: descriptors, and objects in the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use cmid_harness::shell::feed;
use cmid_harness::{Check, Failure};
use serde_json::Value;

use crate::Link;

/// Kinds of objects, as named by `rdma resource show`. Contexts are not among them: librdmacm keeps one for each
/// device.
const KINDS: [&str; 5] = ["cm_id", "qp", "cq", "pd", "mr"];

/// Resources in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Open descriptors, except those of devices: librdmacm opens each device when it lists them, and keeps it open.
    descriptors: usize,
    /// The number of objects of each kind that the kernel counts for this process on the devices of its link.
    objects: BTreeMap<&'static str, usize>,
}

impl Usage {
    /// Counts what is in use now.
    ///
    /// # Errors
    /// The error of rdma(8).
    pub fn now(link: Link) -> Check<Self> {
        let descriptors = descriptors()?;
        let text = resources()?;
        let mut objects = BTreeMap::new();
        // One list for each kind, in order.
        let lists = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        for (kind, list) in KINDS.into_iter().zip(lists) {
            let list = list.map_err(|error| Failure(format!("rdma resource show {kind}: {error}")))?;
            let own = list.as_array().into_iter().flatten().filter(|object| is_own(object, link)).count();
            objects.insert(kind, own);
        }
        if objects.len() < KINDS.len() {
            return Err(Failure(format!("rdma resource show: only {objects:?}")));
        }
        Ok(Usage { descriptors, objects })
    }

    /// Fails if more is in use than before.
    ///
    /// # Errors
    /// Names the resources that are left.
    pub fn is_no_more_than(&self, before: &Usage) -> Check {
        let mut left = Vec::new();
        if self.descriptors > before.descriptors {
            left.push(format!("{} descriptors where {} were", self.descriptors, before.descriptors));
        }
        for (kind, count) in &self.objects {
            let was = before.objects.get(kind).copied().unwrap_or(0);
            if *count > was {
                left.push(format!("{count} {kind} where {was} were"));
            }
        }
        if left.is_empty() { Ok(()) } else { Err(Failure(format!("left over: {}", left.join(", ")))) }
    }
}

/// Lists all objects of all kinds. Retries, because rdma(8) fails when a device goes meanwhile, also one of another
/// link.
fn resources() -> Check<String> {
    let lines: String = KINDS.iter().map(|kind| format!("resource show {kind}\n")).collect();
    let mut last = Failure(String::new());
    for _ in 0..30 {
        match feed("rdma", &["-j", "-b", "-"], &lines) {
            Ok(text) => return Ok(text),
            Err(failure) => last = failure,
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(last)
}

fn is_own(object: &Value, link: Link) -> bool {
    let pid = object.get("pid").and_then(Value::as_u64);
    let device = object.get("ifname").and_then(Value::as_str);
    pid == Some(std::process::id().into()) && Link::ENDS.iter().any(|&end| device == Some(&link.device(end)))
}

fn descriptors() -> Check<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // The descriptor of the directory itself is closed by now.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        if !target.starts_with("/dev/infiniband/uverbs") && target != "anon_inode:[infinibandevent]" {
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_of_anything_is_a_leak() {
        let usage = |descriptors, qps| Usage { descriptors, objects: BTreeMap::from([("qp", qps)]) };
        let before = usage(10, 1);
        assert_eq!(usage(9, 1).is_no_more_than(&before), Ok(()));
        assert!(usage(11, 1).is_no_more_than(&before).is_err());
        assert!(usage(10, 2).is_no_more_than(&before).unwrap_err().0.contains("2 qp where 1 were"));
    }
}
