//! Runs every committed input through its target, on stable and without a fuzzer.

use std::path::Path;
use std::{fs, io};

use cmid_model::TARGETS;

/// Committed corpora are minimised: see `cargo xtask fuzz`.
const MOST_FILES: usize = 300;
const LARGEST_FILE: u64 = 4096;

#[test]
fn every_committed_input_runs_clean() -> io::Result<()> {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
        let mut files: Vec<_> =
            fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        files.sort();
        assert!(!files.is_empty() && files.len() <= MOST_FILES, "{}: {} files", target.name, files.len());
        for file in files {
            assert!(fs::metadata(&file)?.len() <= LARGEST_FILE, "{} is large", file.display());
            let data = fs::read(&file)?;
            // The panic message has the reason; this adds the input.
            std::panic::catch_unwind(|| (target.run)(&data))
                .unwrap_or_else(|_| panic!("{} on {}", target.name, file.display()));
        }
    }
    Ok(())
}

#[test]
fn every_target_takes_any_input() {
    for target in TARGETS {
        (target.run)(&[]);
        (target.run)(&[0; 300]);
        (target.run)(&[255; 300]);
        (target.run)(&std::array::from_fn::<u8, 1000, _>(|at| (at * at / 7 + at) as u8));
    }
}

#[cfg(feature = "devices")]
#[test]
fn every_target_is_a_program_of_cargo_fuzz_and_every_program_and_corpus_a_target() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(here.join("Cargo.toml"))?;
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        let program = fs::read_to_string(here.join("fuzz_targets").join(target.name).with_extension("rs"))?;
        assert!(program.contains(&format!("cmid_model::{}::run", target.name)), "{program}");
    }
    for folder in ["corpus", "fuzz_targets"] {
        for entry in fs::read_dir(here.join(folder))? {
            let path = entry?.path();
            let is_one = TARGETS.iter().any(|target| path.file_stem() == Some(target.name.as_ref()));
            assert!(is_one, "{} is of no target", path.display());
        }
    }
    Ok(())
}
