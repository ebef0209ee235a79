//! Makes a program that shows a disagreement as small as it gets.

use crate::judge::{Reality, Verdict, judge};
use crate::program::Program;

/// Rounds, each of which tries all ways to leave something out, at the same time.
const ROUNDS: usize = 24;

/// Leaves out steps for as long as what is left still differs. What is found differs when it is run with many others.
///
/// # Errors
/// The reality's own.
pub fn shrink(program: &Program, reality: &mut impl Reality) -> anyhow::Result<Program> {
    let mut smallest = program.clone();
    for _ in 0..ROUNDS {
        let candidates: Vec<Program> = smaller(&smallest).into_iter().filter(|one| crate::generate::is_safe(one)).collect();
        let mut next: Option<Program> = None;
        for batch in candidates.chunks(48) {
            for (candidate, run) in batch.iter().zip(reality.run(batch)?) {
                let differs = matches!(judge(candidate, &run, reality.flavour()), Verdict::Differs(_));
                if differs && next.as_ref().is_none_or(|best| weight(candidate) < weight(best)) {
                    next = Some(candidate.clone());
                }
            }
        }
        match next {
            Some(found) => smallest = found,
            None => return Ok(smallest),
        }
    }
    Ok(smallest)
}

fn weight(program: &Program) -> usize {
    program.steps.len() * 2 + program.boundaries()
}

/// The program without a stretch of it, for stretches of many lengths, and with one race less.
fn smaller(program: &Program) -> Vec<Program> {
    let steps = &program.steps;
    let mut all = Vec::new();
    let mut length = steps.len() / 2;
    while length > 0 {
        for from in (0..steps.len()).step_by(length) {
            let mut left = steps.clone();
            left.drain(from..(from + length).min(steps.len()));
            if let Some(first) = left.first_mut() {
                first.races = false;
            }
            all.push(Program { steps: left, ..program.clone() });
        }
        length /= 2;
    }
    for at in (0..steps.len()).filter(|&at| steps[at].races) {
        let mut calm = program.clone();
        calm.steps[at].races = false;
        all.push(calm);
    }
    all
}
