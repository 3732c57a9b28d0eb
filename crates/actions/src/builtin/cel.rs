//! `builtin.cel`: an expression, which speaks of `input`. What it may cost is bounded by [`mutirao_expression`].

use async_trait::async_trait;
use mutirao_expression::{Expression, value_of};
use serde::Deserialize;
use serde_json::Value;

use crate::Action;

pub struct Cel;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    expression: String,
    #[serde(default)]
    input: Value,
}

#[async_trait]
impl Action for Cel {
    async fn run(&self, data: &str) -> Result<String, String> {
        let asked: Asked = super::read(data)?;
        let evaluate = move || {
            let expression = Expression::lately(&asked.expression).map_err(|flaw| flaw.to_string())?;
            expression.evaluate([("input", value_of(&asked.input))]).map(|value| value.to_string())
        };
        // It may take some tenths of a second, in which others have their turn.
        tokio::task::spawn_blocking(evaluate).await.map_err(|_| "the expression cannot be evaluated".to_owned())?
    }
}
