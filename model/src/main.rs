//! Visits every state of the worlds and prints how many there are.
//!
//! `cmid-model [--large] [WORLD...]`: all of them, or those that are named; `--large` adds those with wider bounds.

use std::process::ExitCode;

use cmid_model::connections::{self, Connections};
use cmid_model::memory::{self, Memory};
use cmid_model::{Report, search};

#[expect(clippy::print_stdout, reason = "it is a program that prints")]
fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_large = wanted.iter().any(|it| it == "--large");
    let named: Vec<_> = wanted.into_iter().filter(|it| it != "--large").collect();
    let is_wanted = |name: &str, large: bool| {
        if named.is_empty() { is_large || !large } else { named.iter().any(|it| it == name) }
    };
    let (mut good, mut searched) = (true, 0);
    let mut tell = |report: Report| {
        println!("{report}");
        good &= report.is_good();
        searched += 1;
    };
    for (scenes, large) in [(memory::scenes::ALL, false), (memory::scenes::LARGE, true)] {
        for scene in scenes.iter().filter(|scene| is_wanted(scene.name, large)) {
            tell(search(Memory::new(scene.clone())));
        }
    }
    for (scenes, large) in [(connections::scenes::ALL, false), (connections::scenes::LARGE, true)] {
        for scene in scenes.iter().filter(|scene| is_wanted(scene.name, large)) {
            tell(search(Connections::new(scene.clone())));
        }
    }
    if good && searched > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
