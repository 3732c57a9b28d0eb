//! How large things are: as texts, which bounds what a run may hold, and in memory, which bounds what all of them may.

use serde_json::Value;

use super::words::End;

/// Of a run that holds nothing yet.
pub const RUN_BYTES: usize = 2_048;
/// What a map takes for a field, besides the name and the value.
const FIELD_BYTES: usize = 32;

/// About what an end takes as a text.
pub fn size(end: &End) -> usize {
    match end {
        End::Ok(value) => weigh(value),
        End::Failed(why) => why.len(),
    }
}

/// About what a value takes as a text.
pub fn weigh(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| weigh(item) + 1).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(name, value)| name.len() + 4 + weigh(value)).sum::<usize>(),
    }
}

/// About what a value takes in memory.
pub fn held(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(held).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + FIELD_BYTES + held(value)).sum(),
    };
    size_of::<Value>() + within
}

pub fn held_by(end: &End) -> usize {
    match end {
        End::Ok(value) => held(value),
        End::Failed(why) => why.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_more_than_the_text_and_grows_with_it() {
        let value = json!({"rows": [1, 2.5, "three", null, true], "deep": {"a": {"b": [[]]}}});
        assert!(weigh(&value) >= value.to_string().len() && held(&value) > weigh(&value));
        let list = json!(vec![7; 1_000]);
        assert!(held(&list) >= 1_000 * size_of::<Value>());
        assert!(held(&json!("x".repeat(5_000))) > 5_000);
    }
}
