use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::batch::Value;
use crate::schema::Schema;

fn batch(rows: &[(String, i64)]) -> Batch {
    let schema = Arc::new(Schema::of([("t", Kind::Text), ("n", Kind::Int)]));
    let mut batch = Batch::new(schema);
    for (text, number) in rows {
        batch.push_row(&[Value::Text(text.clone()), Value::Int(*number)]).unwrap();
    }
    batch
}

fn number(keys: &mut Keys, batch: &Batch, fields: &[usize]) -> Vec<u32> {
    let mut numbers = Vec::new();
    keys.number(batch, fields, usize::MAX, &mut numbers, &mut |_, _| {}).unwrap();
    numbers
}

/// Texts with noughts, and prefixes of one another.
fn rows() -> impl Strategy<Value = Vec<(String, i64)>> {
    prop::collection::vec(("[a\u{0}\u{1}é]{0,3}", -3i64..3), 1..200)
}

proptest! {
    #[test]
    fn equal_keys_have_one_number_and_come_out_in_order(rows in rows(), which in 0..3usize) {
        let fields: &[usize] = [&[0][..], &[1], &[0, 1]][which];
        let batch = batch(&rows);
        let kinds: Vec<Kind> = fields.iter().map(|field| batch.schema().fields[*field].kind).collect();
        let mut keys = Keys::of(&kinds);
        let numbers = number(&mut keys, &batch, fields);
        let key = |row: usize| fields.iter().map(|field| {
            crate::aggregate::item::Item::of(batch.column(*field), row)
        }).collect::<Vec<_>>();
        let mut model = BTreeMap::new();
        for (row, found) in numbers.iter().enumerate() {
            prop_assert_eq!(model.entry(key(row)).or_insert(*found), found);
        }
        let sorted: Vec<u32> = model.values().copied().collect();
        prop_assert_eq!(keys.sorted(), sorted);
        let mut columns: Vec<Column> = fields.iter().map(|field| Column::new(batch.schema().fields[*field].kind)).collect();
        model.values().for_each(|number| keys.read(*number, &mut columns));
        for (row, wanted) in model.keys().enumerate() {
            let found: Vec<_> = columns.iter().map(|column| crate::aggregate::item::Item::of(column, row)).collect();
            prop_assert_eq!(&found, wanted);
        }
    }

    #[test]
    fn keys_that_are_removed_are_gone_and_the_others_stay(steps in prop::collection::vec((0i64..40, any::<bool>()), 1..400)) {
        let mut keys = Keys::of(&[Kind::Int]);
        let mut model: BTreeMap<i64, u32> = BTreeMap::new();
        for (key, add) in steps {
            if add {
                let found = number(&mut keys, &batch(&[(String::new(), key)]), &[1])[0];
                prop_assert_eq!(*model.entry(key).or_insert(found), found);
            } else if let Some(number) = model.remove(&key) {
                keys.remove(number);
            }
            prop_assert_eq!(keys.sorted(), model.values().copied().collect::<Vec<_>>());
        }
        let mut to = Writer::default();
        (0..keys.len()).for_each(|number| keys.store(number, &mut to));
        let bytes = to.into_bytes();
        let mut from = Reader::new(&bytes);
        let mut again = Keys::of(&[Kind::Int]);
        (0..keys.len()).for_each(|_| assert!(again.load(&mut from).is_ok()));
        prop_assert_eq!(again.sorted(), keys.sorted());
        prop_assert_eq!(&again.free, &keys.free);
    }
}

#[test]
fn more_keys_than_may_be_are_refused() {
    let mut keys = Keys::of(&[Kind::Int]);
    let rows: Vec<_> = (0..5).map(|n| (String::new(), n)).collect();
    let mut numbers = Vec::new();
    let found = keys.number(&batch(&rows), &[1], 4, &mut numbers, &mut |_, _| {});
    assert_eq!(found, Err(Refused::Keys(4)));
}
