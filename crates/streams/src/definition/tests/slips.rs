//! What people write by mistake, and would not find out by themselves.

use super::{FINE, broken, check, graph};

#[test]
fn an_expression_that_yaml_cuts_at_a_comma_is_told_once_and_how_it_is_written() {
    let wanted = "13:19: a comma between { } ends it, and leaves \"least(volts\"; put the whole expression in quotes";
    assert_eq!(broken("volts * amps", "least(volts, 1, amps)"), [wanted]);
    assert_eq!(graph(&FINE.replace("volts * amps", "\"least(volts, 1, amps)\"")).operators[1].output.len(), 5);
    let twice = broken("add: { watts: volts * amps }", "add: { watts: least(volts, 1), more: least(amps, 1) }");
    assert!(twice[0].ends_with("put an expression with a comma or a bracket in quotes"), "{twice:?}");
}

/// Each of two would write over what the other wrote.
#[test]
fn two_sinks_do_not_write_to_one_file_of_a_host() {
    let other = "file: { path: unfit.jsonl }\n    host: edge-1";
    let faults = broken("stdout: {}", other);
    assert_eq!(faults, ["34:11: sink \"too_late\" writes to unfit.jsonl too; give each a file of its own"]);
    let apart = FINE.replace("file: { path: unfit.jsonl }", "file: { path: unfit.jsonl }\n    host: edge-2");
    assert_eq!(graph(&apart.replace("stdout: {}", other)).sinks.len(), 3);
    let same = apart.replace("edge-2", "edge-1").replace("stdout: {}", other);
    assert_eq!(check(&same).unwrap_err().len(), 1);
}
