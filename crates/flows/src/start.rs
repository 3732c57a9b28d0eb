//! A request for a run. A client that does not know whether it was heard asks again with the
//! same key, and gets the run that it already has; the same key for something else is a slip, and refused.

use mutirao_core::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub const INPUT_BYTES_MAX: usize = 256 << 10;
const KEY_CHARS_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub flow: String,
    #[serde(default)]
    pub input: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// What was asked for, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl RunRequest {
    pub fn check(&self) -> Result<(), Problem> {
        let fits =
            |key: &String| (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        if self.idempotency_key.as_ref().is_some_and(|key| !fits(key)) {
            let detail = format!("a key has 1 to {KEY_CHARS_MAX} visible ASCII characters");
            return Err(Problem::invalid("idempotency_key", detail));
        }
        let bytes = self.input.to_string().len();
        if bytes > INPUT_BYTES_MAX {
            let detail = format!("{bytes} bytes are too many, the most is {INPUT_BYTES_MAX}");
            return Err(
                Problem::invalid("input", detail).remedy("put it where steps can fetch it, and give its address")
            );
        }
        Ok(())
    }

    /// Of what is asked for, however its fields were ordered.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut digest = Sha256::new();
        digest.update((self.flow.len() as u64).to_be_bytes());
        digest.update(&self.flow);
        digest.update(self.input.to_string());
        Fingerprint(digest.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(json: Value) -> RunRequest {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_fingerprint_is_of_what_is_asked_for_however_it_is_written() {
        let first = request(json!({"flow": "f", "input": {"a": 1, "b": 2}, "idempotency_key": "k"}));
        let reordered: RunRequest = serde_json::from_str(r#"{"input":{"b":2,"a":1},"flow":"f"}"#).unwrap();
        assert_eq!(first.fingerprint(), reordered.fingerprint());
        for other in [json!({"flow": "g", "input": {"a": 1, "b": 2}}), json!({"flow": "f", "input": {"a": 2, "b": 2}})]
        {
            assert_ne!(first.fingerprint(), request(other).fingerprint());
        }
    }

    #[test]
    fn what_is_too_large_or_no_key_is_refused_with_its_place() {
        let long = request(json!({"flow": "f", "input": "x".repeat(INPUT_BYTES_MAX)}));
        assert!(long.check().unwrap_err().line().starts_with("input: 262146 bytes are too many"));
        for key in ["", " ", "é", &"x".repeat(201)] {
            let line = request(json!({"flow": "f", "idempotency_key": key})).check().unwrap_err().line();
            assert!(line.starts_with("idempotency_key: "), "{line}");
        }
        assert!(request(json!({"flow": "f", "idempotency_key": "order-17"})).check().is_ok());
    }
}
