mod addresses;
mod slips;
mod times;

use super::*;
use crate::graph::{Does, Port};

const FINE: &str = "\
kind: Stream
name: grid
schema: { meter: text, volts: float, amps: float, at: time }
sources:
  - name: meters
    mqtt: { topic: grid/+/reading }
operators:
  - name: sound
    from: meters
    filter: volts > 0 and amps >= 0
  - name: watts
    from: sound
    add: { watts: volts * amps }
  - name: by_meter
    from: watts
    key_by: meter
  - name: means
    from: by_meter
    window: { slide: 1m, every: 10s, by: at, lateness: 2s }
    aggregate: { watts: mean(watts), worst: 'percentile(watts, 0.95)', events: count() }
    replicas: 2
  - name: alarms
    from: means
    filter: watts > 1000
    replicas: 2
sinks:
  - name: alarm
    from: alarms
    flow: { name: grid-alarm }
  - name: too_late
    from: means.late
    stdout: {}
  - name: unfit
    from: meters.unfit
    file: { path: unfit.jsonl }
";

fn graph(text: &str) -> Graph {
    match check(text) {
        Ok(mut graphs) => graphs.remove(0),
        Err(faults) => panic!("{}", said(&faults).join("\n")),
    }
}

fn said(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(Fault::to_string).collect()
}

/// What is wrong once one piece was replaced by another.
fn broken(piece: &str, by: &str) -> Vec<String> {
    assert!(FINE.contains(piece), "{piece}");
    said(&check(&FINE.replacen(piece, by, 1)).expect_err(by))
}

#[test]
fn a_definition_becomes_a_graph_with_a_schema_on_each_edge() {
    let graph = graph(FINE);
    let outputs: Vec<String> = graph.operators.iter().map(|one| format!("{} {}", one.name, one.output)).collect();
    assert_eq!(
        outputs,
        [
            "sound { meter: text, volts: float, amps: float, at: time }",
            "watts { meter: text, volts: float, amps: float, at: time, watts: float }",
            "by_meter { meter: text, volts: float, amps: float, at: time, watts: float }",
            "means { meter: text, start: time, end: time, watts: float, worst: float, events: int }",
            "alarms { meter: text, start: time, end: time, watts: float, worst: float, events: int }",
        ]
    );
    let stages: Vec<&[usize]> = graph.stages.iter().map(|stage| stage.operators.as_slice()).collect();
    assert_eq!(stages, [&[0, 1, 2][..], &[3, 4][..]]);
    assert_eq!(graph.sinks[1].input, Port::Late(3));
    assert_eq!(graph.sinks[1].schema, graph.operators[3].input);
    assert_eq!(graph.sinks[2].schema.to_string(), "{ event: text, why: text }");
    assert_eq!((graph.operators[3].replicas, graph.operators[0].replicas), (2, 1));
    assert_eq!(graph.operators[3].keys, [0]);
    assert!(graph.operators[3].snapshot.is_some() && graph.operators[0].snapshot.is_none());
}

#[test]
fn every_fault_has_its_place_and_a_suggestion() {
    for (piece, by, fault) in [
        ("volts > 0", "volt > 0", "10:13: there is no field \"volt\"; did you mean \"volts\"?"),
        ("amps >= 0", "amp >= 0", "10:27: there is no field \"amp\"; did you mean \"amps\"?"),
        (
            "volts * amps",
            "volts * meter",
            "13:25: a * b takes int and int, or float and float, and this is float and text",
        ),
        (
            "volts > 0 and amps >= 0",
            "volts",
            "10:13: a filter is true or false, and this is float; compare it with something: volts > 200",
        ),
        ("from: sound", "from: sond", "12:11: there is no \"sond\" to read; did you mean \"sound\"?"),
        (
            "from: means\n",
            "from: alarm\n",
            "23:11: \"alarm\" is a sink, and nothing comes out of it; read what the sink reads",
        ),
        ("means.late", "watts.late", "31:11: nothing is late for \"watts\"; only windows have late events"),
        ("meters.unfit", "meters.bad", "34:11: a source has no \"bad\"; there is meters and meters.unfit"),
        ("key_by: meter", "key_by: metre", "16:13: there is no field \"metre\"; did you mean \"meter\"?"),
        (
            "key_by: meter",
            "key_by: [ meter, volts ]",
            "16:22: events cannot be grouped by \"volts\", which is float; make it whole first: add: { level: int(volts) }",
        ),
        ("by: at", "by: when", "19:42: there is no field \"when\"; there is meter, volts, amps, at, watts"),
        ("by: at", "by: volts", "19:42: \"volts\" is float, and a window by time needs a time; there is at"),
        ("slide: 1m", "slide: 0s", "19:22: a window of no time; write a time like 1m"),
        (
            "every: 10s",
            "every: 100us",
            "19:33: an event would be in 600000 windows, the most is 100000; write every: 600us or more",
        ),
        ("slide: 1m", "slide: 60", "19:22: 60 of what?; write 60 events, or 60s"),
        (
            "every: 10s",
            "every: 2m",
            "19:33: a window that moves further than it is long would miss events; write at most 1m",
        ),
        (
            "slide: 1m, every: 10s, by: at, lateness: 2s",
            "jump: 0 events",
            "19:21: a window of no events; write 1 events or more",
        ),
        (
            "slide: 1m",
            "jump: 1m",
            "19:32: a window that jumps moves by its own size; leave every out, or write slide instead of jump",
        ),
        ("mean(watts)", "mean(watt)", "20:30: there is no field \"watt\"; did you mean \"watts\"?"),
        ("mean(watts)", "maen(watts)", "20:25: \"maen(watts)\" is no aggregate; did you mean \"mean\"?"),
        ("mean(watts)", "mean(meter)", "20:25: there is no mean of text; it is written mean(x)"),
        (
            "mean(watts)",
            "mean(volts * amps)",
            "20:36: aggregates are made of fields, not of expressions; make it a field first, in an operator with add",
        ),
        (
            "percentile(watts, 0.95)",
            "percentile(watts, 95)",
            "20:45: 95 is no percentile: write a share from 0 to 1, such as 0.95; it is written percentile(x, 0.95)",
        ),
        (
            "watts: mean",
            "meter: mean",
            "20:18: there are two fields \"meter\"; the fields of the key come out too, and start and end of a window by time",
        ),
        ("replicas: 2", "replicas: 9", "21:15: replicas is between 1 and 5, and not \"9\""),
        ("mqtt: {", "mqt: {", "6:5: a source has no field \"mqt\"; did you mean \"mqtt\"?"),
        (
            "grid/+/reading",
            "grid/a+/reading",
            "6:20: nobody can subscribe to \"grid/a+/reading\"; + stands for one whole level, # for all that follow: grid/+/reading, grid/#",
        ),
        ("volts: float", "volts: double", "3:31: there is no kind \"double\"; it is called \"float\" here"),
        ("volts: float", "volts: flaot", "3:31: there is no kind \"flaot\"; did you mean \"float\"?"),
        (
            "name: too_late",
            "name: alarm",
            "30:11: \"alarm\" is the name of something else too; sources, operators and sinks each have a name of their own",
        ),
        (
            "filter: watts > 1000\n    replicas: 2",
            "filter: watts > 1000\n    snapshot: 5s",
            "25:15: it keeps nothing that a snapshot could be taken of; leave snapshot out",
        ),
        ("kind: Stream\n", "kind: Stream\nname: again\n", "3:1: the same field stands there twice"),
    ] {
        let faults = broken(piece, by);
        assert!(faults.iter().any(|one| one == fault), "{by} gave\n{}\nand not\n{fault}", faults.join("\n"));
    }
}

#[test]
fn one_slip_is_one_fault() {
    for (piece, by) in [
        ("volts > 0", "volt > 0"),
        ("from: sound", "from: sond"),
        ("volts * amps", "volts * meter"),
        ("key_by: meter", "key_by: metre"),
        ("slide: 1m", "slide: 0s"),
        ("add: { watts: volts * amps }", "add: [ 1 ]"),
        ("volts: float", "volts: flaot"),
    ] {
        assert_eq!(broken(piece, by).len(), 1, "{by} gave {:?}", broken(piece, by));
    }
}

#[test]
fn all_faults_are_told_at_once_in_their_order() {
    let text =
        FINE.replace("volts > 0", "volt > 0").replace("slide: 1m", "slide: 0s").replace("replicas: 2", "replicas: x");
    let places: Vec<usize> = check(&text).unwrap_err().iter().map(|fault| fault.place.line).collect();
    assert_eq!(places, [10, 19, 21, 25]);
}

#[test]
fn those_that_read_each_other_are_named() {
    let faults = broken("from: meters\n    filter", "from: watts\n    filter");
    assert!(faults[0].contains("it reads itself: sound from watts from sound") || faults[0].contains("nobody reads"));
    assert!(
        faults.iter().any(|fault| fault.starts_with("9:11: it reads itself: sound from watts from sound")),
        "{faults:?}"
    );
}

#[test]
fn what_nobody_reads_is_told() {
    let faults = broken("from: alarms", "from: means");
    assert_eq!(faults, ["22:11: nobody reads \"alarms\"; have an operator or a sink read it, or leave it out"]);
}

#[test]
fn a_key_that_a_map_leaves_out_is_not_silently_lost() {
    let after =
        "  - name: thin\n    from: by_meter\n    map: { watts: watts, at: at }\n  - name: means\n    from: thin\n";
    let faults = broken("  - name: means\n    from: by_meter\n", after);
    assert!(faults[0].contains("events were kept apart by \"meter\", and \"thin\" leaves it out"), "{faults:?}");
    let renamed = after.replace("{ watts", "{ which: meter, watts");
    let text = FINE.replacen("  - name: means\n    from: by_meter\n", &renamed, 1);
    assert_eq!(graph(&text).operators[4].output.fields[0].name, "which");
}

#[test]
fn unions_join_what_is_alike() {
    let second = "  - name: more\n    http: {}\noperators:\n  - name: both\n    union: [ meters, more ]\n";
    let text = FINE.replacen("operators:\n", second, 1).replacen("from: meters\n", "from: both\n", 1);
    let both = graph(&text);
    assert!(matches!(both.operators[0].does, Does::Union));
    assert_eq!(both.stages[0].operators, [0, 1, 2, 3], "what follows a union joins its stage");
    let other = text.replacen("http: {}", "http: {}\n    schema: { meter: text }", 1);
    let faults = said(&check(&other).unwrap_err());
    assert!(faults[0].contains("have a map make the same fields in the same order"), "{faults:?}");
}

#[test]
fn a_union_has_each_input_once() {
    let twice = broken("filter: volts > 0 and amps >= 0", "union: [ meters, meters ]");
    let wanted =
        "10:22: \"meters\" is in the union twice; an event comes out of a union once for each time that it came in";
    assert!(twice.iter().any(|one| one == wanted), "{twice:?}");
}

/// Neither a stack nor memory is at the mercy of a text.
#[test]
fn a_text_that_is_deep_or_stands_for_very_much_is_refused() {
    for deep in ["- ".repeat(400_000), "? ".repeat(400_000), format!("a: {}", "[".repeat(200))] {
        let faults = said(&check(&deep).unwrap_err());
        assert!(faults[0].contains("more than 20 levels"), "{faults:?}");
    }
    let mut laughs = "a0: &a0 [ ha, ha, ha, ha, ha, ha, ha, ha ]\n".to_owned();
    for n in 1..12 {
        laughs += &format!("a{n}: &a{n} [ {} ]\n", vec![format!("*a{}", n - 1); 8].join(", "));
    }
    let faults = said(&check(&laughs).unwrap_err());
    assert!(faults[0].contains("more than 262144 pieces"), "{faults:?}");
}

#[test]
fn generators_are_checked_against_their_schema() {
    let made = "generator: { rate: 100, seed: 7, fields: { meter: text(n % 10), volts: 220 + 10 * random1, amps: random2, at: at } }";
    let text = FINE.replacen("mqtt: { topic: grid/+/reading }", made, 1);
    assert_eq!(graph(&text).sources[0].schema.len(), 4);
    let wrong = text.replacen("amps: random2, ", "", 1).replacen("text(n % 10)", "n % 10", 1);
    assert_eq!(
        said(&check(&wrong).unwrap_err()),
        [
            "5:5: the generator makes no \"amps\", which the schema has",
            "6:55: \"meter\" is text, and this is int; write text(n % 10)",
        ]
    );
    let table = "rate: [ { for: 60s, rate: 100 }, { for: 60s, rate: 600, ramp: 70s } ]";
    let faults = said(&check(&text.replacen("rate: 100", table, 1)).unwrap_err());
    assert!(faults[0].contains("the ramp is longer than its period"), "{faults:?}");
}

#[test]
fn sinks_may_speak_of_fields() {
    for (to, fault) in [
        ("mqtt: { topic: 'grid/{metre}' }", "there is no field \"metre\"; did you mean \"meter\"?"),
        ("mqtt: { topic: 'grid/{meter' }", "a { is not closed"),
        ("mqtt: { topic: grid/# }", "nobody can publish to"),
        ("kv: { key: 'm/{meter}', value: wats }", "there is no field \"wats\"; did you mean \"watts\"?"),
        ("webhook: { url: example.org }", "is no address of a web server"),
        ("flow: {}", "flow needs name"),
        ("amqp: { exchange: x }", "amqp needs key"),
        ("nowhere: {}", "a sink has no field \"nowhere\""),
    ] {
        let faults = broken("flow: { name: grid-alarm }", to);
        assert!(faults.iter().any(|one| one.contains(fault)), "{to} gave {faults:?}");
    }
    for to in ["mqtt: { topic: 'grid/{meter}' }", "kv: { key: 'm/{meter}', value: watts }", "amqp: { key: alarms }"] {
        graph(&FINE.replacen("flow: { name: grid-alarm }", to, 1));
    }
}

#[test]
fn expressions_in_blocks_and_quotes_have_their_places() {
    let quoted = broken("filter: volts > 0 and amps >= 0", "filter: \"volt > 0\"");
    assert!(quoted[0].starts_with("10:14: there is no field \"volt\""), "{quoted:?}");
    let block = broken("filter: volts > 0 and amps >= 0", "filter: |\n      volts > 0\n      and amp >= 0");
    assert!(block[0].starts_with("12:11: there is no field \"amp\""), "{block:?}");
}

#[test]
fn a_file_may_declare_other_things_too() {
    let text = format!("kind: Queue\nname: q\n---\n{FINE}---\n{}", FINE.replacen("name: grid\n", "name: other\n", 1));
    let names: Vec<String> = check(&text).unwrap().into_iter().map(|graph| graph.name).collect();
    assert_eq!(names, ["grid", "other"]);
    assert_eq!(
        said(&check("kind: Queue").unwrap_err()),
        ["1:1: it defines no stream; a stream begins with kind: Stream"]
    );
    assert_eq!(said(&check("").unwrap_err()), ["1:1: it defines no stream; a stream begins with kind: Stream"]);
    assert_eq!(said(&check("a: 1").unwrap_err()), ["1:1: kind is missing; a stream begins with kind: Stream"]);
    assert!(said(&check("kind: [").unwrap_err())[0].contains("it is not YAML"));
}

#[test]
fn a_graph_is_shown_as_text_and_as_a_picture() {
    let graph = graph(FINE);
    let text = graph.text();
    for piece in [
        "source meters: mqtt grid/+/reading",
        "stage 1, reads meters",
        "  sound: filter volts > 0 and amps >= 0",
        "stage 2, reads by_meter, 2 replicas",
        "  means: window 1m by at, every 10s, 2s late at most; watts = mean(watts); worst = percentile(watts, 0.95); events = count()",
        "sink alarm: flow grid-alarm",
    ] {
        assert!(text.contains(piece), "{piece} is not in\n{text}");
    }
    let dot = graph.dot();
    assert!(
        dot.starts_with("digraph \"grid\" {") && dot.contains("\"means\" -> \"too_late\" [style=dashed, label=late];")
    );
    assert_eq!(serde_json::to_value(graph.view()).unwrap()["stages"][1]["operators"][0], "means");
}

proptest::proptest! {
    #[test]
    fn any_text_gives_an_answer(text in ".{0,80}", at in 0usize..900, with in "[a-z0-9:{}\\[\\]|>\"'#,\n -]{0,6}") {
        let _ = check(&text);
        let mut spoilt = FINE.to_owned();
        spoilt.insert_str(at.min(FINE.len()), &with);
        for graph in check(&spoilt).unwrap_or_default() {
            proptest::prop_assert!(!graph.text().is_empty() && !graph.dot().is_empty());
        }
    }
}
