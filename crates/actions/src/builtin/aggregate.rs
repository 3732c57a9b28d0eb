//! `builtin.aggregate`: many figures, and what they come to together.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Action;

const PERCENTILES_MAX: usize = 20;

pub struct Aggregate;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Figures, or objects that have one under `field`.
    values: Vec<Value>,
    #[serde(default)]
    field: Option<String>,
    #[serde(default = "usual")]
    percentiles: Vec<f64>,
}

fn usual() -> Vec<f64> {
    vec![50.0, 95.0, 99.0]
}

#[async_trait]
impl Action for Aggregate {
    async fn run(&self, data: &str) -> Result<String, String> {
        let Asked { values, field, percentiles } = super::read(data)?;
        if percentiles.len() > PERCENTILES_MAX || percentiles.iter().any(|p| !(0.0..=100.0).contains(p)) {
            return Err(format!("percentiles: at most {PERCENTILES_MAX}, each from 0 to 100"));
        }
        let figure = |(n, value): (usize, &Value)| {
            let value = field.as_deref().map_or(value, |field| &value[field]);
            let shown = field.as_deref().map_or_else(|| format!("values[{n}]"), |field| format!("values[{n}].{field}"));
            value.as_f64().ok_or_else(|| format!("{shown} is not a number"))
        };
        let figures: Vec<f64> = values.iter().enumerate().map(figure).collect::<Result<_, _>>()?;
        Ok(of(figures, &percentiles).to_string())
    }
}

/// Of no figures there are none but their count and their sum.
pub fn of(mut figures: Vec<f64>, percentiles: &[f64]) -> Value {
    figures.sort_by(f64::total_cmp);
    // The sum of none is minus zero otherwise.
    let sum = figures.iter().fold(0.0, |sum, figure| sum + figure);
    let mut said = Map::from_iter([("count".to_owned(), json!(figures.len())), ("sum".to_owned(), json!(sum))]);
    if let (Some(min), Some(max)) = (figures.first(), figures.last()) {
        said.insert("mean".into(), json!(sum / figures.len() as f64));
        said.insert("min".into(), json!(min));
        said.insert("max".into(), json!(max));
        for p in percentiles {
            said.insert(format!("p{p}"), json!(percentile(&figures, *p)));
        }
    }
    said.into()
}

/// The smallest figure that so many per cent are not above.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let rank = (p / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn figures_lie_where_they_must(figures in proptest::collection::vec(-1e6..1e6f64, 1..200), p in 0.0..100.0f64) {
            let said = of(figures.clone(), &[0.0, p, 100.0]);
            let at = |name: &str| said[name].as_f64().unwrap();
            prop_assert_eq!(at("count") as usize, figures.len());
            prop_assert_eq!((at("p0"), at("p100")), (at("min"), at("max")));
            prop_assert!(at("min") <= at("mean") + 1e-6 && at("mean") <= at("max") + 1e-6);
            let low = at(&format!("p{p}"));
            let not_above = figures.iter().filter(|one| **one <= low).count() as f64;
            prop_assert!(not_above >= p / 100.0 * figures.len() as f64 - 1e-9 && figures.contains(&low));
        }
    }

    #[tokio::test]
    async fn fields_of_objects_are_taken_and_what_is_no_figure_is_named() {
        let run = async |text: &str| Aggregate.run(text).await;
        let said = run(r#"{"values": [{"v": 1}, {"v": 3}], "field": "v", "percentiles": [50]}"#).await.unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said, json!({"count": 2, "sum": 4.0, "mean": 2.0, "min": 1.0, "max": 3.0, "p50": 1.0}));
        assert_eq!(run(r#"{"values": []}"#).await.unwrap(), r#"{"count":0,"sum":0.0}"#);
        assert_eq!(run(r#"{"values": [1, "x"]}"#).await.unwrap_err(), "values[1] is not a number");
        assert!(run(r#"{"values": [], "percentiles": [101]}"#).await.unwrap_err().starts_with("percentiles: "));
    }
}
