use std::sync::Arc;

use proptest::prelude::*;

use super::*;

pub fn schema() -> Arc<Schema> {
    Arc::new(Schema::of([
        ("n", Kind::Int),
        ("x", Kind::Float),
        ("yes", Kind::Bool),
        ("who", Kind::Text),
        ("at", Kind::Time),
    ]))
}

pub type Cells = (i64, f64, bool, String, i64);

pub fn row(cells: &Cells) -> Vec<Value> {
    let (n, x, yes, who, at) = cells;
    vec![Value::Int(*n), Value::Float(*x), Value::Bool(*yes), Value::Text(who.clone()), Value::Time(*at)]
}

pub fn batch(rows: &[Cells]) -> Batch {
    let mut batch = Batch::new(schema());
    rows.iter().for_each(|cells| batch.push_row(&row(cells)).unwrap());
    batch
}

pub fn rows() -> impl Strategy<Value = Vec<Cells>> {
    proptest::collection::vec((any::<i64>(), -1e9..1e9, any::<bool>(), ".{0,8}", any::<i64>()), 0..40)
}

proptest! {
    #[test]
    fn what_was_pushed_is_there(rows in rows()) {
        let batch = batch(&rows);
        prop_assert_eq!(batch.rows(), rows.len());
        for (n, cells) in rows.iter().enumerate() {
            prop_assert_eq!(batch.row(n), row(cells));
        }
    }

    #[test]
    fn rows_are_kept_taken_and_cut_as_from_a_list(rows in rows(), keep in proptest::collection::vec(any::<bool>(), 40)) {
        let whole = batch(&rows);
        let keep = &keep[..rows.len()];
        let kept: Vec<Cells> = rows.iter().zip(keep).filter(|(_, keep)| **keep).map(|(cells, _)| cells.clone()).collect();
        prop_assert_eq!(whole.filter(keep), batch(&kept));
        let (from, to) = (rows.len() / 3, rows.len() * 2 / 3);
        prop_assert_eq!(whole.slice(from..to), batch(&rows[from..to]));
        let parts = [whole.slice(0..from), whole.slice(from..to), whole.slice(to..usize::MAX)];
        prop_assert_eq!(Batch::concat(schema(), &parts).unwrap(), whole.clone());
        let backwards: Vec<u32> = (0..rows.len() as u32).rev().collect();
        let reversed: Vec<Cells> = rows.iter().rev().cloned().collect();
        prop_assert_eq!(whole.take(&backwards), batch(&reversed));
    }
}

#[test]
fn a_row_that_does_not_fit_leaves_nothing_behind() {
    let mut batch = batch(&[(1, 1.0, true, "a".into(), 1)]);
    let before = batch.clone();
    let mut wrong = row(&(2, 2.0, true, "b".into(), 2));
    wrong[4] = Value::Int(2);
    let error = batch.push_row(&wrong).unwrap_err();
    assert_eq!(error.to_string(), "field \"at\" is time, and this is int");
    assert!(matches!(batch.push_row(&wrong[..2]), Err(Unfit::Width { wanted: 5, found: 2 })));
    wrong[3] = Value::Text("x".repeat(TEXT_BYTES_MAX + 1));
    assert!(matches!(batch.push_row(&wrong), Err(Unfit::LongText { .. })));
    assert_eq!(batch, before);
}

#[test]
fn a_batch_that_is_full_stays_as_it_is() {
    let schema = Arc::new(Schema::of([("n", Kind::Int)]));
    let mut full = Batch::of(schema.clone(), vec![Column::Int(vec![7; ROWS_MAX])]).unwrap();
    assert_eq!(full.push_row(&[Value::Int(1)]), Err(Unfit::Full));
    let one = Batch::of(schema.clone(), vec![Column::Int(vec![1])]).unwrap();
    assert_eq!(full.append(&one), Err(Unfit::Full));
    assert_eq!(full.rows(), ROWS_MAX);
    assert_eq!(Batch::of(schema, vec![Column::Int(vec![7; ROWS_MAX + 1])]), Err(Unfit::Full));
}

#[test]
fn columns_that_make_no_batch_are_refused() {
    let schema = Arc::new(Schema::of([("n", Kind::Int), ("at", Kind::Time)]));
    let of = |columns| Batch::of(schema.clone(), columns).unwrap_err();
    assert_eq!(of(vec![]), Unfit::Width { wanted: 2, found: 0 });
    assert_eq!(of(vec![Column::Int(vec![1]), Column::Time(vec![])]), Unfit::Ragged);
    assert!(matches!(of(vec![Column::Int(vec![1]), Column::Int(vec![1])]), Unfit::Kind { .. }));
}

#[test]
fn a_text_is_cut_at_whole_characters() {
    let mut texts = Texts::new();
    texts.push(&"é".repeat(TEXT_BYTES_MAX));
    texts.push_with(|all| all.push_str(&format!("x{}", "é".repeat(TEXT_BYTES_MAX))));
    assert_eq!(texts.get(0).len(), TEXT_BYTES_MAX);
    assert_eq!(texts.get(1).len(), TEXT_BYTES_MAX - 1);
    assert!(Texts::of(vec![1], "é".into()).is_none());
    assert!(Texts::of(vec![2, 1], "ab".into()).is_none());
    assert!(Texts::of(vec![1], "ab".into()).is_none());
}
