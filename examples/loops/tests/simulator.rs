//! Each loop on the simulated fabric.

use std::process::{Command, Output};

fn loops(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_loops")).args(arguments).output().expect("the program starts");
    (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn each_loop() {
    let names = ["mio", "epoll", "blocking", "io-uring", "calloop", "async-io", "busy-polling", "acceptor"];
    let (success, said) = loops(&[]);
    assert!(success, "{said}");
    assert!(
        said.lines().count() == names.len() && names.iter().all(|name| said.contains(&format!("{name}: "))),
        "{said}"
    );
    let (success, said) = loops(&["calloop"]);
    assert!(success && said.lines().count() == 1, "{said}");
}

#[test]
fn another_name_is_an_error_with_the_names() {
    let (success, said) = loops(&["tokio"]);
    assert!(!success && said.contains("only mio, epoll"), "{said}");
}

/// A reactor needs no more than this for a client and a server with data: lines of code of the program and its loop.
#[test]
fn the_program_and_its_loop_have_at_most_90_lines_of_code() {
    let code = |name: &str| {
        let file = format!("{}/src/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).expect("a text");
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
    };
    for on in ["on_mio", "on_epoll"] {
        let lines = code("program") + code(on);
        assert!((60..=90).contains(&lines), "{on}: {lines} lines");
    }
}

/// A user copies one file, which must fit on a screen.
#[test]
fn each_loop_has_at_most_60_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
    let mut seen = 0;
    for file in files.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("on_"))) {
        let text = std::fs::read_to_string(&file).expect("a text");
        let lines = text.lines().count();
        assert!(lines <= 60, "{}: {lines} lines", file.display());
        seen += 1;
    }
    assert_eq!(seen, 8);
}
