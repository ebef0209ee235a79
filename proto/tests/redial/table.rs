//! The machine follows its table: each cell that can be reached, by public calls alone.

use cmid_proto::redial::rules::{Effect, Input, REDIAL};
use cmid_proto::redial::{Cause, Redial, RedialLimits, Stage, Todo};

use crate::{LIMITS, OWN, calling, connected, ms, new};

/// A machine in this state, with limits that permit this many own calls.
fn at(stage: Stage, attempts: u32) -> Redial {
    let limits = RedialLimits { attempts, ..LIMITS };
    let mut redial = match stage {
        Stage::Waiting => new(limits),
        Stage::Calling | Stage::Answering => calling(limits),
        Stage::Connected | Stage::Replacing | Stage::GivenUp => connected(limits),
    };
    match stage {
        Stage::Answering | Stage::Replacing => _ = redial.called(OWN - 1, ms(0)),
        Stage::GivenUp => _ = redial.stop(),
        Stage::Waiting | Stage::Calling | Stage::Connected => {}
    }
    assert_eq!(redial.stage(), stage);
    redial
}

/// Feeds an input. `None` if there is no such input in this state.
fn feed(stage: Stage, input: Input) -> Option<(Redial, Todo)> {
    use Stage::{Answering, Calling, Connected, GivenUp, Replacing, Waiting};
    let mut redial = at(stage, if input == Input::Spent { 1 } else { 9 });
    let todo = match (input, stage) {
        (Input::Due, _) => redial.handle_timeout(ms(0), 0),
        (Input::Established, _) => redial.established(ms(1)),
        (Input::Failed, _) => redial.failed(Cause::Heals, ms(1), 0),
        (Input::Refused, _) => redial.failed(Cause::Refused, ms(1), 0),
        (Input::Late, Calling | Answering | Replacing) => redial.handle_timeout(ms(50), 0),
        (Input::Late, Connected | GivenUp) => redial.handle_timeout(ms(5000), 0),
        (Input::Spent, Waiting) => redial.handle_timeout(ms(5000), 0),
        (Input::Spent, Calling | Answering) => redial.handle_timeout(ms(50), 0),
        (Input::Spent, Connected) => redial.lost(ms(1), 0),
        (Input::Late, Waiting) | (Input::Spent, Replacing | GivenUp) => return None,
        // The peer's number decides only while this side calls.
        (Input::Called, _) => redial.called(OWN - 1, ms(1)),
        (Input::Crossed, Calling | GivenUp) => redial.called(OWN + 1, ms(1)),
        (Input::Crossed, Waiting | Answering | Connected | Replacing) => return None,
        (Input::Lost, _) => redial.lost(ms(1), 0),
        (Input::Stop, _) => redial.stop(),
    };
    Some((redial, todo))
}

fn effect(todo: Todo) -> Effect {
    match todo {
        Todo::Nothing => Effect::Nothing,
        Todo::Wait { .. } => Effect::Wait,
        Todo::Dial { .. } => Effect::Dial,
        Todo::Accept { instead: false, .. } => Effect::Accept,
        Todo::Accept { instead: true, .. } => Effect::AcceptInstead,
        Todo::Reject => Effect::Reject,
        Todo::Cancel => Effect::Cancel,
        Todo::Use { instead: false } => Effect::Use,
        Todo::Use { instead: true } => Effect::UseInstead,
        Todo::GiveUp(_) => Effect::GiveUp,
    }
}

#[test]
fn each_input_in_each_state_does_what_the_table_says() {
    let mut not_fed = Vec::new();
    for stage in Stage::ALL {
        for input in Input::ALL {
            let cell = REDIAL[stage.index()][input.index()];
            match feed(stage, input) {
                Some((redial, todo)) => {
                    assert_eq!((redial.stage(), effect(todo)), cell, "{input} while {stage}");
                    assert_eq!(redial.timeout().is_none(), matches!(cell.0, Stage::Connected | Stage::GivenUp));
                    assert_eq!(redial.given_up().is_some(), cell.0 == Stage::GivenUp);
                }
                None => not_fed.push((stage, input, cell)),
            }
        }
    }
    // Nothing that happens leads to these cells.
    assert_eq!(not_fed.len(), 7);
    for (stage, input, cell) in not_fed {
        assert_eq!(cell, (stage, Effect::Nothing), "{input} while {stage}");
    }
}

#[test]
fn every_effect_is_that_of_a_cell() {
    let cells: Vec<_> = REDIAL.as_flattened().iter().map(|(_, effect)| *effect).collect();
    assert!(Effect::ALL.iter().all(|effect| cells.contains(effect)));
}
