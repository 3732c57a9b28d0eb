//! Tasks that ended badly, and letters that nobody could read.

use mutirao_core::Timestamp;
use mutirao_core::job::{DeadTask, Letter};

use super::{ago, ending, one_line, or_dash, size, state, table};

pub fn dead_tasks(tasks: &[DeadTask], now: Timestamp) -> String {
    if tasks.is_empty() {
        return "no such tasks: nothing failed, timed out, was lost or given up".into();
    }
    let row = |DeadTask { task, queue, name }: &DeadTask| {
        [
            task.id.to_string(),
            or_dash(name.as_deref().map(one_line)),
            queue.to_string(),
            state(task.state).into(),
            ending(task),
            (task.failures + task.losses).to_string(),
            or_dash(task.ended_at.map(|at| ago(at, now))),
            or_dash(task.reason.as_deref().map(one_line)),
        ]
    };
    table(["ID", "NAME", "QUEUE", "STATE", "EXIT", "TRIES", "AGE", "REASON"], tasks.iter().map(row))
}

pub fn letters(letters: &[Letter]) -> String {
    if letters.is_empty() {
        return "no dead letters".into();
    }
    let row = |letter: &Letter| {
        let (reason, text) = (one_line(&letter.reason), one_line(&letter.text));
        [letter.id.clone(), letter.way.clone(), size(letter.bytes), reason, text]
    };
    table(["ID", "WAY", "SIZE", "REASON", "BEGINS"], letters.iter().map(row))
}
