//! One figure of a list of values, each by its definition.

use std::collections::{BTreeMap, BTreeSet};

use crate::aggregate::distinct::{self, Distinct};
use crate::aggregate::frequent::{self, Frequent};
use crate::aggregate::item::Item;
use crate::aggregate::{Function, quantile};
use crate::batch::{Batch, Column, Value};
use crate::schema::{Kind, Schema};

/// Of at least one value: in the order in which they came, and in the order of their times.
pub fn aggregate(function: &Function, kind: Option<Kind>, came: &[Value], by_time: &[Value], jumps: bool) -> Value {
    let count = came.len();
    let ints = || came.iter().map(|value| if let Value::Int(value) = value { i128::from(*value) } else { 0 });
    match function {
        Function::Count => Value::Int(count as i64),
        Function::Sum if kind == Some(Kind::Int) => {
            let sum: i128 = ints().sum();
            Value::Int(i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX }))
        }
        Function::Mean if kind == Some(Kind::Int) => Value::Float(ints().sum::<i128>() as f64 / count as f64),
        Function::Variance if kind == Some(Kind::Int) => {
            let (sum, squares) = (ints().sum::<i128>(), ints().map(|value| value * value).sum::<i128>());
            Value::Float((count as i128 * squares - sum * sum) as f64 / count as f64 / count as f64)
        }
        Function::Sum => Value::Float(rounded(&numbers(came))),
        Function::Mean => Value::Float(rounded(&numbers(came)) / count as f64),
        Function::Variance => Value::Float(variance(&numbers(came))),
        Function::Min => sorted(came)[0].clone(),
        Function::Max => sorted(came)[count - 1].clone(),
        Function::First => by_time[0].clone(),
        Function::Last => by_time[count - 1].clone(),
        Function::Percentile(share) => {
            let mut all = numbers(came);
            all.sort_by(f64::total_cmp);
            let exact = all[place(*share, count)];
            Value::Float(if count > quantile::EXACT_MAX { quantile::coarse(exact) } else { exact })
        }
        Function::Histogram(bounds) => {
            let edges = [&[f64::NEG_INFINITY], &bounds[..], &[f64::INFINITY]].concat();
            let within = |n: &f64, pair: &[f64]| *n <= pair[1] && (*n > pair[0] || pair[0].is_infinite());
            let part = |pair: &[f64]| numbers(came).iter().filter(|n| within(n, pair)).count();
            let parts: Vec<String> = edges.windows(2).map(|pair| part(pair).to_string()).collect();
            Value::Text(format!("[{}]", parts.join(",")))
        }
        Function::Distinct => Value::Int(different(came, jumps)),
        Function::Frequent(top) => Value::Text(most_frequent(came, *top, jumps)),
    }
}

/// By the share as it is written: so many parts of a power of ten.
fn place(share: f64, count: usize) -> usize {
    let text = format!("{share}");
    let (_, digits) = text.split_once('.').unwrap_or((&text, ""));
    let whole = if share >= 1.0 { 1 } else { 0 };
    let of = 10u128.pow(digits.len() as u32);
    let parts = whole * of + digits.parse::<u128>().unwrap_or(0);
    let place = (parts * count as u128).div_ceil(of) as usize;
    place.clamp(1, count) - 1
}

fn numbers(values: &[Value]) -> Vec<f64> {
    let number = |value: &Value| match value {
        Value::Float(value) => *value,
        Value::Int(value) => *value as f64,
        other => unreachable!("{other} is no number"),
    };
    values.iter().map(number).collect()
}

fn sorted(values: &[Value]) -> Vec<Value> {
    let mut all = values.to_vec();
    all.sort_by_key(Item::of_value);
    all
}

fn different(values: &[Value], jumps: bool) -> i64 {
    let all: BTreeSet<Item> = values.iter().map(Item::of_value).collect();
    if !jumps || all.len() <= distinct::KEPT {
        return all.len() as i64;
    }
    let column = column_of(values);
    let mut sketch = Distinct::default();
    (0..values.len()).for_each(|row| sketch.add(Item::hash_of(&column, row)));
    sketch.count()
}

fn column_of(values: &[Value]) -> Column {
    let schema = Schema::of([("value", values[0].kind())]);
    let mut batch = Batch::new(std::sync::Arc::new(schema));
    values.iter().for_each(|value| drop(batch.push_row(std::slice::from_ref(value))));
    batch.column(0).clone()
}

fn most_frequent(values: &[Value], top: usize, jumps: bool) -> String {
    let mut counts: BTreeMap<Item, u64> = BTreeMap::new();
    values.iter().for_each(|value| *counts.entry(Item::of_value(value)).or_default() += 1);
    let mut text = String::new();
    if jumps && counts.len() > frequent::KEPT {
        let mut sketch = Frequent::default();
        values.iter().for_each(|value| sketch.add(Item::of_value(value)));
        sketch.write_top(top, &mut text);
        return text;
    }
    let mut all: Vec<(Item, u64)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let said = all.iter().take(top).map(|(item, count)| {
        let mut text = String::from("[");
        item.write_json(&mut text);
        format!("{text},{count}]")
    });
    format!("[{}]", said.collect::<Vec<_>>().join(","))
}

/// The sum, rounded once, by Shewchuk's way: parts that do not overlap, each addition exact.
fn rounded(values: &[f64]) -> f64 {
    let mut parts: Vec<f64> = Vec::new();
    for value in values {
        let mut value = *value;
        let mut kept = 0;
        for n in 0..parts.len() {
            let part = parts[n];
            let (large, small) = if value.abs() < part.abs() { (part, value) } else { (value, part) };
            let sum = large + small;
            let rest = small - (sum - large);
            if rest != 0.0 {
                parts[kept] = rest;
                kept += 1;
            }
            value = sum;
        }
        parts.truncate(kept);
        parts.push(value);
    }
    // From the greatest part on, until one does not fit; then half a step is decided by what is left.
    let Some(mut sum) = parts.pop() else { return 0.0 };
    while let Some(part) = parts.pop() {
        let before = sum;
        sum = before + part;
        let rest = part - (sum - before);
        if rest != 0.0 {
            let same_side = parts.last().is_some_and(|below| (*below < 0.0) == (rest < 0.0) && *below != 0.0);
            let twice = rest * 2.0;
            if same_side && twice == (sum + twice) - sum {
                sum += twice;
            }
            break;
        }
    }
    // Never minus zero.
    sum + 0.0
}

/// (n·Σx² − ΣΣxy) / n², each product exactly as two floats.
fn variance(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let product = |x: f64, y: f64| [x * y, x.mul_add(y, -(x * y))];
    let mut terms = Vec::new();
    for x in values {
        terms.extend(product(*x, *x).into_iter().flat_map(|part| product(part, n)));
        terms.extend(values.iter().flat_map(|y| product(*x, *y)).map(|part| -part));
    }
    rounded(&terms) / n / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_value_that_its_share_does_not_exceed() {
        assert_eq!([place(0.07, 100), place(0.29, 100), place(0.95, 100), place(0.5, 3)], [6, 28, 94, 1]);
        assert_eq!([place(0.0, 5), place(1.0, 5), place(0.001, 5)], [0, 4, 0]);
        for share in (0..=1000).map(|n| f64::from(n) / 1000.0) {
            for count in 1..=300 {
                assert_eq!(quantile::place(share, count as u64), place(share, count) as u64, "{share} of {count}");
            }
        }
    }

    #[test]
    fn sums_and_variances_are_rounded_once() {
        assert_eq!(rounded(&[1e100, 1.0, -1e100]), 1.0);
        assert_eq!(rounded(&[0.1; 10]), 1.0);
        assert_eq!(rounded(&[]), 0.0);
        assert_eq!(variance(&[4.0, 7.0, 13.0, 16.0]), 22.5);
        assert_eq!(variance(&[0.1; 7]), 0.0);
    }
}
