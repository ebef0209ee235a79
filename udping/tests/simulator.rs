//! The program on the simulated fabric, with each driver.

use std::process::{Command, Output};

#[test]
fn the_demo_on_every_driver() {
    for driver in ["mio", "epoll", "blocking"] {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_udping"))
            .args(["demo", "--driver", driver])
            .output()
            .expect("the program starts");
        let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{driver}: {said}");
        for line in ["100 datagrams answered", "10 messages came", "10 messages sent to 239.1.1.1"] {
            assert!(said.contains(line), "{driver}: {line} is not in\n{said}");
        }
    }
}
