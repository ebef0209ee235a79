//! The program on the simulated fabric, with each driver.

use std::process::{Command, Output};

fn rping(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_rping")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn pings_on_every_driver() {
    for driver in ["mio", "epoll", "blocking"] {
        let arguments = ["-c", "-a", "10.0.0.2", "-C", "20", "-S", "300", "-V", "-v", "--driver", driver];
        let (succeeded, said) = rping(&arguments);
        assert!(succeeded, "{driver}: {said}");
        let both = |text: &str| said.lines().filter(|line| line.starts_with(text)).count();
        assert_eq!((both("ping data: rdma-ping-"), both("server ping data: rdma-ping-")), (20, 20), "{driver}: {said}");
    }
}

#[test]
fn the_demo() {
    let (succeeded, said) = rping(&["demo"]);
    assert!(succeeded, "{said}");
    assert_eq!(said.matches("has had its 3 pings and disconnects").count(), 2, "{said}");
    assert!(said.contains("disconnects after 3 pings") && said.contains("is on ch1; ch0 is empty"), "{said}");
}
