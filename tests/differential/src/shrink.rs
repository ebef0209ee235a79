//! Shrinks a program that shows a disagreement.

use std::collections::BTreeSet;

use crate::generate;
use crate::judge::{Reality, Verdict, judge};
use crate::program::{CHILDREN, Program, SideName, Slot};

/// The maximum number of rounds. Each one runs all smaller variants at once.
const ROUNDS: usize = 24;

/// Removes steps while the rest still differs and it is not too late. The result differs when it is run together with
/// many others.
///
/// # Errors
/// The reality fails.
pub fn shrink(program: &Program, reality: &mut impl Reality, late: &impl Fn() -> bool) -> anyhow::Result<Program> {
    let mut smallest = program.clone();
    for _ in 0..ROUNDS {
        let candidates: Vec<Program> = smaller(&smallest).into_iter().filter(generate::is_safe).collect();
        let mut next: Option<Program> = None;
        for batch in candidates.chunks(48) {
            if late() {
                break;
            }
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

/// The program without a range of its steps, for ranges of many lengths, and with one race less.
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
    all.extend(without_ids(program));
    for at in (0..steps.len()).filter(|&at| steps[at].races) {
        let mut calm = program.clone();
        calm.steps[at].races = false;
        all.push(calm);
    }
    all
}

/// The program without one id, and without a child of the other side. The children after it move up.
fn without_ids(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for side in [SideName::A, SideName::B] {
        let ids: BTreeSet<Slot> = of_side(program, side).filter(|&id| id < CHILDREN).collect();
        let children: BTreeSet<Slot> = of_side(program, side.other()).filter(|&id| id >= CHILDREN).collect();
        for &id in &ids {
            all.push(without(program, (side, id), None));
            all.extend(children.iter().map(|&child| without(program, (side, id), Some((side.other(), child)))));
        }
    }
    all
}

fn of_side(program: &Program, side: SideName) -> impl Iterator<Item = Slot> + '_ {
    program.steps.iter().filter(move |step| step.side == side).filter_map(|step| step.action.id())
}

fn without(program: &Program, id: (SideName, Slot), child: Option<(SideName, Slot)>) -> Program {
    let mut left = program.clone();
    left.steps.retain(|step| {
        let about = step.action.id().map(|id| (step.side, id));
        about.is_none() || (about != Some(id) && about != child)
    });
    for step in &mut left.steps {
        if let (Some((side, child)), Some(id)) = (child, step.action.id_mut())
            && step.side == side
            && *id > child
        {
            *id -= 1;
        }
    }
    if let Some(first) = left.steps.first_mut() {
        first.races = false;
    }
    left
}
