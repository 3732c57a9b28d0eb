//! Over columns or a value at a time: the same answers, for any expression and any events.

use std::sync::Arc;

use proptest::prelude::*;

use crate::batch::{Batch, Column, Texts, Value};
use crate::expression::{Expression, Scratch, naive, syntax};
use crate::schema::{Kind, Schema};

fn schema() -> Arc<Schema> {
    Arc::new(Schema::of([
        ("n", Kind::Int),
        ("m", Kind::Int),
        ("x", Kind::Float),
        ("y", Kind::Float),
        ("yes", Kind::Bool),
        ("no", Kind::Bool),
        ("who", Kind::Text),
        ("whom", Kind::Text),
        ("at", Kind::Time),
        ("then", Kind::Time),
    ]))
}

fn ints() -> BoxedStrategy<i64> {
    prop_oneof![Just(0), Just(1), Just(-1), Just(i64::MAX), Just(i64::MIN), -100i64..100, any::<i64>(),].boxed()
}

fn floats() -> BoxedStrategy<f64> {
    prop_oneof![
        Just(0.0),
        Just(-0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        -100.0..100.0,
        any::<f64>(),
    ]
    .boxed()
}

fn texts() -> BoxedStrategy<String> {
    prop_oneof!["[a-c/ ]{0,5}", ".{0,4}", "-?[0-9]{1,3}(\\.[0-9])?", Just("2026-11-16T15:50:34Z".to_owned()),].boxed()
}

fn times() -> BoxedStrategy<i64> {
    prop_oneof![ints(), 0i64..2_000_000_000_000_000].boxed()
}

fn batches() -> impl Strategy<Value = Batch> {
    let rows = 0usize..20;
    rows.prop_flat_map(|rows| {
        let ints = || proptest::collection::vec(ints(), rows);
        let floats = || proptest::collection::vec(floats(), rows);
        let bools = || proptest::collection::vec(any::<bool>(), rows);
        let texts = || proptest::collection::vec(texts(), rows);
        let times = || proptest::collection::vec(times(), rows);
        ((ints(), ints(), floats(), floats(), bools()), (bools(), texts(), texts(), times(), times()))
    })
    .prop_map(|((n, m, x, y, yes), (no, who, whom, at, then))| {
        let text = |all: Vec<String>| Column::Text(all.into_iter().collect::<Texts>());
        let columns = vec![
            Column::Int(n),
            Column::Int(m),
            Column::Float(x),
            Column::Float(y),
            Column::Bool(yes),
            Column::Bool(no),
            text(who),
            text(whom),
            Column::Time(at),
            Column::Time(then),
        ];
        Batch::of(schema(), columns).unwrap()
    })
}

/// Expressions of each kind, as they are written, that are so deep; made of those that are less deep.
fn expressions(depth: u32) -> Vec<BoxedStrategy<String>> {
    let inner = if depth == 0 { Vec::new() } else { expressions(depth - 1) };
    Kind::ALL.into_iter().map(|kind| expression(kind, &inner)).collect()
}

fn expression(kind: Kind, inner: &[BoxedStrategy<String>]) -> BoxedStrategy<String> {
    let leaf = match kind {
        Kind::Int => {
            let figure = (0i64..1000).prop_map(|n| n.to_string());
            prop_oneof![Just("n".to_owned()), Just("m".to_owned()), figure].boxed()
        }
        Kind::Float => {
            let figure = (0.0..9.0).prop_map(|x: f64| format!("{x:?}"));
            prop_oneof![Just("x".to_owned()), Just("y".to_owned()), figure].boxed()
        }
        Kind::Bool => prop_oneof![Just("yes".to_owned()), Just("no".to_owned()), Just("true".to_owned())].boxed(),
        Kind::Text => {
            prop_oneof![Just("who".to_owned()), Just("whom".to_owned()), "[a-c/]{0,3}".prop_map(quoted)].boxed()
        }
        Kind::Time => prop_oneof![Just("at".to_owned()), Just("then".to_owned()), Just("time(1h)".to_owned())].boxed(),
    };
    if inner.is_empty() {
        return leaf;
    }
    let call = |like: &'static str, kinds: &[Kind]| -> BoxedStrategy<String> {
        let of: Vec<BoxedStrategy<String>> = kinds.iter().map(|kind| inner[*kind as usize].clone()).collect();
        of.prop_map(move |of| {
            let mut pieces = like.split('@');
            let first = pieces.next().unwrap_or_default().to_owned();
            of.iter().zip(pieces).fold(first, |all, (one, piece)| format!("{all}({one}){piece}"))
        })
        .boxed()
    };
    use Kind::{Bool, Float, Int, Text, Time};
    let calls: Vec<BoxedStrategy<String>> = match kind {
        Int => vec![
            call("@ + @", &[Int, Int]),
            call("@ - @", &[Int, Int]),
            call("@ * @", &[Int, Int]),
            call("@ % @", &[Int, Int]),
            call("div(@, @)", &[Int, Int]),
            call("-@", &[Int]),
            call("abs(@)", &[Int]),
            call("least(@, @, @)", &[Int, Int, Int]),
            call("clamp(@, @, @)", &[Int, Int, Int]),
            call("if(@, @, @)", &[Bool, Int, Int]),
            call("length(@)", &[Text]),
            call("int(@)", &[Float]),
            call("int(@)", &[Bool]),
            call("int(@, @)", &[Text, Int]),
            call("@ - @", &[Time, Time]),
            call("year(@) + month(@)", &[Time, Time]),
            call("day(@) + hour(@)", &[Time, Time]),
            call("minute(@) + second(@)", &[Time, Time]),
            call("weekday(@)", &[Time]),
            call("int(@)", &[Time]),
        ],
        Float => vec![
            call("@ + @", &[Float, Float]),
            call("@ - @", &[Int, Float]),
            call("@ * @", &[Float, Int]),
            call("@ / @", &[Int, Int]),
            call("@ / @", &[Float, Float]),
            call("-@", &[Float]),
            call("abs(@)", &[Float]),
            call("sqrt(@)", &[Float]),
            call("floor(@) + ceil(@)", &[Float, Float]),
            call("round(@) + trunc(@)", &[Float, Float]),
            call("exp(@) + ln(@)", &[Float, Float]),
            call("log10(@) + pow(@, @)", &[Float, Float, Float]),
            call("sin(@) + cos(@) + atan2(@, @)", &[Float, Float, Float, Float]),
            call("least(@, @)", &[Float, Float]),
            call("greatest(@, @, @)", &[Float, Int, Float]),
            call("if(@, @, @)", &[Bool, Float, Int]),
            call("float(@, @)", &[Text, Float]),
            call("float(@)", &[Int]),
        ],
        Bool => vec![
            call("@ and @", &[Bool, Bool]),
            call("@ or @", &[Bool, Bool]),
            call("not @", &[Bool]),
            call("@ == @", &[Int, Int]),
            call("@ < @", &[Int, Int]),
            call("@ >= @", &[Int, Float]),
            call("@ != @", &[Float, Float]),
            call("@ <= @", &[Float, Float]),
            call("@ > @", &[Text, Text]),
            call("@ == @", &[Text, Text]),
            call("@ == @", &[Bool, Bool]),
            call("@ < @", &[Time, Time]),
            call("@ in [@, @]", &[Int, Int, Int]),
            call("@ in [@, @]", &[Int, Float, Int]),
            call("@ in [@, @]", &[Float, Int, Float]),
            call("@ in [@, @]", &[Bool, Bool, Bool]),
            call("@ in [@]", &[Time, Time]),
            call("@ in [@, @]", &[Text, Text, Text]),
            call("contains(@, @) or starts_with(@, @)", &[Text, Text, Text, Text]),
            call("ends_with(@, @)", &[Text, Text]),
            call("is_nan(@)", &[Float]),
            call("if(@, @, @)", &[Bool, Bool, Bool]),
        ],
        Text => vec![
            call("@ + @", &[Text, Text]),
            call("lower(@) + upper(@)", &[Text, Text]),
            call("trim(@)", &[Text]),
            call("replace(@, @, @)", &[Text, Text, Text]),
            call("part(@, @, @)", &[Text, Int, Int]),
            call("split(@, @, @)", &[Text, Text, Int]),
            call("text(@) + text(@)", &[Int, Float]),
            call("text(@) + text(@)", &[Bool, Time]),
            call("if(@, @, @)", &[Bool, Text, Text]),
        ],
        Time => vec![
            call("@ + @", &[Time, Int]),
            call("@ - @", &[Time, Int]),
            call("@ + @", &[Int, Time]),
            call("truncate(@, @)", &[Time, Int]),
            call("greatest(@, @)", &[Time, Time]),
            call("time(@)", &[Int]),
            call("time(@, @)", &[Text, Time]),
            call("if(@, @, @)", &[Bool, Time, Time]),
        ],
    };
    prop_oneof![1 => leaf, 4 => proptest::strategy::Union::new(calls)].boxed()
}

fn quoted(text: String) -> String {
    format!("'{text}'")
}

fn any_expression() -> impl Strategy<Value = (Kind, String)> {
    let each = Kind::ALL.into_iter().zip(expressions(3));
    proptest::strategy::Union::new(each.map(|(kind, text)| text.prop_map(move |text| (kind, text)).boxed()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn columns_and_single_values_give_the_same(
        (kind, text) in any_expression(),
        batch in batches(),
    ) {
        let expression = Expression::compile(&text, &schema());
        let expression = expression.map_err(|flaws| TestCaseError::fail(format!("{text}: {flaws:?}")))?;
        prop_assert_eq!(expression.kind(), kind, "{}", &text);
        let mut scratch = Scratch::default();
        let tree = syntax::parse(&text).unwrap();
        // The second time with buffers that were used.
        for _ in 0..2 {
            let column = expression.run(&batch, &mut scratch);
            prop_assert_eq!(column.len(), batch.rows());
            for row in 0..batch.rows() {
                let plain = naive::value(&tree, &|name| batch.named(name).unwrap().get(row));
                let fast = column.get(row);
                prop_assert!(fast.same(&plain), "{} gave {} and by itself {}", &text, fast, plain);
            }
            scratch.recycle(column);
        }
    }

    #[test]
    fn any_text_gives_an_answer(text in ".{0,60}", words in "([nxy() +*<>=,'\"1-9]|and|or|not|if|who){0,30}") {
        for text in [&text, &words] {
            match Expression::compile(text, &schema()) {
                Ok(expression) => drop(expression.run(&Batch::new(schema()), &mut Scratch::default())),
                Err(flaws) => prop_assert!(!flaws.is_empty() && flaws.iter().all(|flaw| flaw.at <= text.len())),
            }
        }
    }
}

#[test]
fn a_value_that_is_the_same_for_all_rows_is_there_for_each() {
    let batch = Batch::of(schema(), five_rows()).unwrap();
    let five = Expression::compile("'a' + 'b'", &schema()).unwrap().run(&batch, &mut Scratch::default());
    assert_eq!((five.len(), five.get(4)), (5, Value::from("ab")));
}

fn five_rows() -> Vec<Column> {
    schema()
        .fields
        .iter()
        .map(|field| match field.kind {
            Kind::Int => Column::Int(vec![1; 5]),
            Kind::Float => Column::Float(vec![1.0; 5]),
            Kind::Bool => Column::Bool(vec![true; 5]),
            Kind::Text => Column::Text(["a"; 5].iter().collect()),
            Kind::Time => Column::Time(vec![1; 5]),
        })
        .collect()
}
