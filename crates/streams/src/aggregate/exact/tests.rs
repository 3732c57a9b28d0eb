use proptest::prelude::*;

use super::*;

fn sum(values: &[f64]) -> Exact {
    let mut sum = Exact::default();
    values.iter().for_each(|value| sum.add(*value));
    sum
}

fn bytes(sum: &Exact) -> Vec<u8> {
    let mut to = Writer::default();
    sum.store(&mut to);
    to.into_bytes()
}

/// Any bits, so that the least and the greatest floats are there too.
fn floats() -> impl Strategy<Value = Vec<f64>> {
    let float = prop_oneof![
        any::<f64>().prop_filter("finite", |f| f.is_finite()),
        -1000.0..1000.0f64,
        any::<u64>().prop_map(|bits| f64::from_bits(bits >> 12)),
        any::<i32>().prop_map(f64::from),
    ];
    prop::collection::vec(float, 0..40)
}

#[test]
fn a_sum_does_not_lose_what_rounding_would() {
    assert_eq!(sum(&[1e100, 1.0, -1e100]).value(), 1.0);
    assert_eq!(sum(&[0.1; 10]).value(), 1.0);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]).value(), f64::MAX);
    assert_eq!(sum(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX]).mean(2), f64::MAX);
    assert_eq!(sum(&[5e-324, 5e-324]).value(), 1e-323);
    assert_eq!(sum(&[]).value(), 0.0);
}

#[test]
fn between_two_floats_the_even_one_is_taken() {
    let one = 9_007_199_254_740_992.0; // 2^53
    assert_eq!(sum(&[one, 1.0]).value(), one);
    assert_eq!(sum(&[one, 3.0]).value(), one + 4.0);
    assert_eq!(sum(&[one, 1.0, 5e-324]).value(), one + 2.0);
}

#[test]
fn what_is_no_number_is_counted_and_can_be_taken_away() {
    let mut odd = sum(&[1.0, f64::INFINITY]);
    assert_eq!(odd.value(), f64::INFINITY);
    odd.add(f64::NEG_INFINITY);
    assert!(odd.value().is_nan());
    odd.remove(f64::INFINITY);
    odd.remove(f64::NEG_INFINITY);
    assert_eq!(odd.value(), 1.0);
    odd.add(-f64::NAN);
    assert!(odd.value().is_nan());
}

#[test]
fn carries_are_passed_on_in_time() {
    let mut sum = Exact::default();
    sum.add(-f64::from(u32::MAX));
    for round in 0..5 {
        sum.limbs[0] -= 1 << (56 + round);
        sum.carry();
        sum.carry();
    }
    let below: f64 = (0..5).map(|round| 2f64.powi(56 + round)).sum();
    assert_eq!(sum.value(), (-f64::from(u32::MAX) / two_to(32 * sum.low) - below) * two_to(32 * sum.low));
}

#[test]
fn a_variance_far_from_nought_is_right() {
    let mut moments = Moments::default();
    [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0].into_iter().for_each(|x| moments.add(x));
    assert_eq!(moments.variance(4), 22.5);
    let mut ints = Moments::default();
    [i64::MAX, i64::MAX - 2].into_iter().for_each(|x| ints.add_int(x));
    assert_eq!(ints.variance(2), 1.0);
}

proptest! {
    #[test]
    fn order_does_not_matter_and_nothing_is_left_of_what_was_taken_away(values in floats(), cut in 0..40usize) {
        let cut = cut.min(values.len());
        let (rest, gone) = values.split_at(cut);
        let backwards: Vec<f64> = values.iter().rev().copied().collect();
        prop_assert_eq!(bytes(&sum(&values)), bytes(&sum(&backwards)));
        let mut less = sum(&values);
        gone.iter().for_each(|value| less.remove(*value));
        prop_assert_eq!(bytes(&less), bytes(&sum(rest)));
        prop_assert_eq!(less.value().to_bits(), sum(rest).value().to_bits());
    }

    #[test]
    fn small_sums_are_what_whole_numbers_say(values in prop::collection::vec(-(1i64 << 52)..1 << 52, 0..50), power in -100i32..100) {
        let exact: i128 = values.iter().map(|value| i128::from(*value)).sum();
        let scaled: Vec<f64> = values.iter().map(|value| *value as f64 * two_to(power)).collect();
        prop_assert_eq!(sum(&scaled).value(), exact as f64 * two_to(power));
    }

    #[test]
    fn two_floats_add_up_as_the_processor_says(one in any::<f64>(), other in any::<f64>()) {
        let (ours, theirs) = (sum(&[one, other]).value(), one + other);
        prop_assert!(ours == theirs || ours.is_nan() && theirs.is_nan(), "{} for {}", ours, theirs);
    }

    #[test]
    fn what_is_written_is_read(values in floats()) {
        let whole = sum(&values);
        let written = bytes(&whole);
        let read = Exact::load(&mut Reader::new(&written)).unwrap();
        prop_assert_eq!(bytes(&read), written);
        prop_assert_eq!(read.value().to_bits(), whole.value().to_bits());
    }

    #[test]
    fn variances_are_right_and_taking_away_leaves_no_dust(values in prop::collection::vec(-1_000_000i64..1_000_000, 1..40), more in floats()) {
        let mut moments = Moments::default();
        more.iter().for_each(|value| moments.add(*value));
        values.iter().for_each(|value| moments.add(*value as f64));
        more.iter().for_each(|value| moments.remove(*value));
        let n = values.len() as i128;
        let (sum, squares) = values.iter().fold((0i128, 0i128), |(s, q), v| (s + i128::from(*v), q + i128::from(*v).pow(2)));
        let exact = (n * squares - sum * sum) as f64 / n as f64 / n as f64;
        prop_assert_eq!(moments.variance(n as u64), exact);
        let mut ints = Moments::default();
        values.iter().for_each(|value| ints.add_int(*value));
        prop_assert_eq!(ints.variance(n as u64), exact);
    }
}
