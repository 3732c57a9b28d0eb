use proptest::prelude::*;

use super::super::tests::{batch, rows, schema};
use super::*;
use crate::schema::Kind;

fn meters() -> Rows {
    Rows::new(Arc::new(Schema::of([("meter", Kind::Text), ("volts", Kind::Float), ("at", Kind::Time)])))
}

fn whys(read: &Read) -> Vec<&str> {
    read.misfits.iter().map(|misfit| misfit.why.as_str()).collect()
}

#[test]
fn events_come_alone_by_line_and_in_arrays() {
    let one = r#"{"meter":"a","volts":219,"at":"2026-11-16T15:50:34Z"}"#;
    let pretty = "{\n  \"meter\": \"a}\\\"{\",\n  \"volts\": 1.5,\n  \"at\": 7\n}";
    for (message, rows) in [
        (one.to_owned(), 1),
        (format!("{one}\n{one}\r\n{one}"), 3),
        (format!("[{one}, {one}]"), 2),
        (format!("{one}{one}"), 2),
        (pretty.to_owned(), 1),
        (format!("[\n{pretty},\n{pretty}\n]"), 2),
        (String::new(), 0),
        ("[]".to_owned(), 0),
    ] {
        let mut reader = meters();
        assert!(reader.read(message.as_bytes()).is_empty());
        let read = reader.take();
        assert_eq!((read.batch.rows(), whys(&read)), (rows, vec![]), "{message}");
    }
}

#[test]
fn an_event_that_does_not_fit_is_given_back_with_its_reason() {
    for (event, why) in [
        (r#"{"meter":"a","volts":1}"#, r#"it lacks the field "at""#),
        (r#"{"meter":"a","volts":"x","at":1}"#, r#"field "volts" is a number, and "x" is not"#),
        (r#"{"meter":7,"volts":1,"at":1}"#, r#"field "meter" is a text, and 7 is not"#),
        (r#"{"meter":"a","meter":"b","volts":1,"at":1}"#, r#"it has the field "meter" twice"#),
        (r#"{"meter":null,"volts":1,"at":1}"#, r#"field "meter" is a text, and null is not"#),
        (
            r#"{"meter":"a","volts":1,"at":"now"}"#,
            "field \"at\" is a time like \"2026-11-16T15:50:34Z\", and \"now\" is not",
        ),
        (r#"{"meter":"a","volts":1,"at":1.5}"#, "field \"at\" is a time like \"2026-11-16T15:50:34Z\", and 1.5 is not"),
        (r#"{"meter":["a"],"volts":1,"at":1}"#, "field \"meter\" is a text, and a list is not"),
        (r#"{"meter":"a","volts":1e999,"at":1}"#, "field \"volts\" is a number, and 1e999 is not"),
        (r#"{"meter":"a","volts":01,"at":1}"#, "it is no JSON: \"01\" is no value"),
        (
            r#"{"meter":"a","volts":1,"at":9223372036854775808}"#,
            "field \"at\" is a time like \"2026-11-16T15:50:34Z\", and 9223372036854775808 is not",
        ),
        (r#"{"meter":"a" "volts":1,"at":1}"#, "it is no JSON: \"\\\"\" stands where \"}\" is expected"),
        (r#"{"meter":"a","volts":1,"at":1,"more":[1,}"#, "it is no JSON: a value is written wrongly"),
        ("7", "it is no JSON object"),
        ("hello", "it is no JSON object"),
    ] {
        let fine = r#"{"meter":"b","volts":1,"at":1,"more":{"deep":[1]}}"#;
        let mut reader = meters();
        reader.read(format!("{fine}\n{event}\n{fine}").as_bytes());
        let read = reader.take();
        assert_eq!((read.batch.rows(), whys(&read), read.misfits_total), (2, vec![why], 1));
        assert_eq!(read.misfits[0].event, event);
    }
}

#[test]
fn a_broken_line_costs_the_others_nothing() {
    let fine = r#"{"meter":"b","volts":1,"at":1}"#;
    for broken in [r#"{"meter":"b","#, r#"{"meter":"b"#, "{", r#"{"a":{"b":{"#, "\u{0}{", "{\"meter\" \"x\"}"] {
        let mut reader = meters();
        reader.read(format!("{fine}\n{broken}\n{fine}\n{fine}").as_bytes());
        let read = reader.take();
        assert_eq!((read.batch.rows(), read.misfits_total), (3, 1), "{broken} gave {:?}", read.misfits);
    }
}

#[test]
fn a_list_that_does_not_end_and_a_list_in_a_list_are_told() {
    let fine = r#"{"meter":"b","volts":1,"at":1}"#;
    let (cut, none) =
        ("the list that begins here does not end; it may have been cut off on its way", "it is no JSON object");
    for (message, rows, told) in [
        ("[".to_owned(), 0, vec![("[", cut)]),
        ("[[".to_owned(), 0, vec![("[[", none)]),
        ("[1,2]".to_owned(), 0, vec![("[1,2]", none)]),
        (format!("[{fine},{fine}"), 2, vec![("[", cut)]),
        (format!("[{fine},{fine}\n"), 2, vec![("[", cut)]),
        (format!("[{fine},\n[{fine}]]"), 1, vec![(r#"[{"meter":"b","volts":1,"at":1}]]"#, none), ("[", cut)]),
        // Pieces of whole lines of one list, and lists one after the other.
        (format!("[\n{fine},\n{fine},\n"), 2, vec![]),
        (format!("{fine},\n{fine}\n]\n"), 2, vec![]),
        (format!("[{fine}]\n[{fine}]"), 2, vec![]),
    ] {
        let mut reader = meters();
        assert!(reader.read(message.as_bytes()).is_empty());
        let read = reader.take();
        let given: Vec<_> = read.misfits.iter().map(|one| (one.event.as_str(), one.why.as_str())).collect();
        assert_eq!((read.batch.rows(), given), (rows, told.clone()), "{message}");
        assert_eq!(is_cut_off(message.as_bytes()), told.iter().any(|(_, why)| *why == cut), "{message}");
    }
    let mut reader = meters();
    reader.read("[".repeat(5_000).as_bytes());
    assert_eq!(reader.take().misfits_total, 1);
}

#[test]
fn a_single_value_among_the_objects_of_a_list_costs_the_others_nothing() {
    let fine = r#"{"meter":"b","volts":1,"at":1}"#;
    for value in ["7", "null", "-1.5e3", r#""a, ]\" b""#, r#""\\""#, "true"] {
        for message in [format!("[{fine}, {value} , {fine}]"), format!("[\n{fine},\n{value}\n,{fine},{value}]")] {
            let mut reader = meters();
            reader.read(message.as_bytes());
            let read = reader.take();
            assert_eq!((read.batch.rows(), read.misfits[0].event.as_str()), (2, value), "{message}");
            assert!(!is_cut_off(message.as_bytes()), "{message}");
        }
    }
    let broken = format!("[{fine},\"a,\n{fine}]");
    let mut reader = meters();
    reader.read(broken.as_bytes());
    let read = reader.take();
    assert_eq!((read.batch.rows(), read.misfits[0].event.as_str()), (2, "\"a,"));
}

#[test]
fn that_a_list_is_cut_off_is_told_also_where_it_is_read_in_pieces() {
    for events in [ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 5] {
        let mut reader = Rows::new(Arc::new(Schema::of([("n", Kind::Int)])));
        let message = format!("[{}", vec!["{\"n\":1}"; events].join(","));
        let (mut rest, mut rows, mut misfits) = (message.as_bytes(), 0, 0);
        loop {
            rest = reader.read(rest);
            let read = reader.take();
            (rows, misfits) = (rows + read.batch.rows(), misfits + read.misfits_total);
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!((rows, misfits), (events, 1));
    }
}

#[test]
fn what_is_given_back_is_bounded_and_all_of_it_counted() {
    let mut reader = meters();
    reader.read("x\n".repeat(MISFITS_MAX + 10).as_bytes());
    reader.read("y".repeat(MISFIT_BYTES_MAX * 2).as_bytes());
    let read = reader.take();
    assert_eq!((read.misfits.len(), read.misfits_total), (MISFITS_MAX + 1, MISFITS_MAX as u64 + 11));
    reader.read("é".repeat(MISFIT_BYTES_MAX).as_bytes());
    assert!(reader.take().misfits[0].event.len() <= MISFIT_BYTES_MAX);
}

#[test]
fn a_full_batch_gives_the_rest_back() {
    let mut reader = Rows::new(Arc::new(Schema::of([("n", Kind::Int)])));
    let message = "{\"n\":1}\n".repeat(ROWS_MAX + 5);
    let rest = reader.read(message.as_bytes());
    assert_eq!(reader.take().batch.rows(), ROWS_MAX);
    assert!(reader.read(rest).is_empty());
    assert_eq!(reader.take().batch.rows(), 5);
}

#[test]
fn floats_that_json_has_no_word_for_are_texts() {
    let schema = Arc::new(Schema::of([("x", Kind::Float)]));
    let all = vec![f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300];
    let batch = Batch::of(schema.clone(), vec![Column::Float(all)]).unwrap();
    let mut out = Vec::new();
    write(&batch, &mut out);
    let mut reader = Rows::new(schema);
    reader.read(&out);
    assert_eq!(reader.take().batch, batch);
    reader.read(br#"{"x":"NaN"}"#);
    assert!(reader.take().batch.column(0).floats().unwrap()[0].is_nan());
}

/// Whatever we take, another reader of JSON takes for the same.
#[test]
fn texts_with_escapes_and_odd_numbers_are_read_as_json_says() {
    let mut reader = meters();
    reader.read(br#"{ "met\u0065r" : "a\n\u00e9\\\"b", "volts" : -0.5e+3 , "x": {"y":["}"]}, "at" : 7 }"#);
    let read = reader.take();
    assert_eq!(whys(&read), Vec::<&str>::new());
    assert_eq!(read.batch.row(0), vec!["a\né\\\"b".into(), (-500.0).into(), crate::Value::Time(7)]);
}

proptest! {
    #[test]
    fn what_is_taken_is_json(text in r#"\{("meter":"[a-c\\n]{0,3}"|"volts":[-+.e0-9]{1,4}|"at":[0-9]{1,3}|"x":[\[\]{}1,"]{1,4}|[ ,]){0,8}\}"#) {
        let mut reader = meters();
        reader.read(text.as_bytes());
        let read = reader.take();
        if read.batch.rows() == 1 && read.misfits_total == 0 {
            let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
            prop_assert!(theirs.is_ok(), "{} was taken", text);
        }
    }

    #[test]
    fn what_is_written_is_read_again(rows in rows()) {
        let batch = batch(&rows);
        let mut out = Vec::new();
        write(&batch, &mut out);
        let mut reader = Rows::new(schema());
        prop_assert!(reader.read(&out).is_empty());
        let read = reader.take();
        prop_assert_eq!(read.misfits_total, 0, "{:?}", read.misfits);
        prop_assert_eq!(read.batch, batch);
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = meters();
        prop_assert!(reader.read(&bytes).is_empty());
        reader.take();
    }

    #[test]
    fn any_braces_give_an_answer(text in r#"[{}\[\]",:a1 \\\n]{0,60}"#) {
        let mut reader = meters();
        prop_assert!(reader.read(text.as_bytes()).is_empty());
        reader.take();
    }
}
