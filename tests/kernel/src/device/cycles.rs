//! Many connections, one after the other.

use cmid_proto::datapath::ProtectionDomain;
use cmid_proto::{Call, CmEvent};
use cmid_verbs::Access;

use crate::env::{Side, connect};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Makes and ends one connection with all its objects.
fn cycle(client: &mut Side, server: &mut Side, addr: std::net::SocketAddr) {
    let (c, s) = connect(client, server, addr);
    let (_from, _to) = (
        c.pd.register(vec![1; 4096], Access::empty()).expect("register"),
        s.pd.register(vec![2; 4096], Access::LOCAL_WRITE).expect("register"),
    );
    client.ok(&Call::Disconnect { id: c.id });
    server.expect(CmEvent::Disconnected);
    server.ok(&Call::Disconnect { id: s.id });
    client.expect(CmEvent::Disconnected);
    client.ok(&Call::Destroy { id: c.id });
    server.ok(&Call::Destroy { id: s.id });
}

pub(crate) fn nothing_is_left() {
    let at_first = descriptors();
    {
        let (mut client, mut server) = (Side::new(), Side::new());
        let (_, addr) = server.listener();
        cycle(&mut client, &mut server, addr);
        let (before, memory) = (descriptors(), resident_kib());
        for _ in 0..200 {
            cycle(&mut client, &mut server, addr);
        }
        assert_eq!(descriptors(), before, "descriptors");
        println!("             {before} descriptors, {} KiB more", resident_kib().saturating_sub(memory));
        assert_eq!((client.device.counts(), server.device.counts()), ((0, 1), (1, 1)));
    }
    assert_eq!(descriptors(), at_first, "descriptors after the devices are dropped");
}
