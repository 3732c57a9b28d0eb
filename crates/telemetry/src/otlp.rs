//! Spans as OTLP's JSON has them: ids in hex, times in nanoseconds as texts. Pure.

use mutirao_core::trace::Span;
use serde_json::{Value, json};

/// Who tells: the same for all spans of a process.
#[derive(Clone, Debug)]
pub struct Teller {
    /// `manager` or `worker`.
    pub role: String,
    /// Tells processes of the same role apart.
    pub instance: String,
    pub version: String,
}

const INTERNAL: u8 = 1;
const FAILED: u8 = 2;

/// One request's body.
pub fn body(teller: &Teller, spans: &[Span]) -> Value {
    let resource = json!({"attributes": [
        text("service.name", "mutirao"),
        text("service.namespace", "mutirao"),
        text("service.instance.id", &teller.instance),
        text("service.version", &teller.version),
        text("mutirao.role", &teller.role),
    ]});
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "mutirao"}, "spans": spans}]}]})
}

fn span(span: &Span) -> Value {
    let began_ns = u128::from(span.began_at.0.max(0) as u64) * 1_000_000;
    let mut told = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": began_ns.to_string(),
        "endTimeUnixNano": (began_ns + span.took.as_nanos()).to_string(),
        "attributes": span.notes.iter().map(|(key, value)| text(key, value)).collect::<Vec<_>>(),
    });
    if span.parent != 0 {
        told["parentSpanId"] = format!("{:016x}", span.parent).into();
    }
    if let Some(why) = &span.failed {
        told["status"] = json!({"code": FAILED, "message": why});
    }
    told
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mutirao_core::Timestamp;

    use super::*;

    #[test]
    fn a_span_is_written_as_collectors_read_it() {
        let mut one = Span {
            trace: 0x4bf9,
            id: 7,
            parent: 0,
            name: "run",
            began_at: Timestamp(1_700_000_000_123),
            took: Duration::from_micros(1_500),
            notes: vec![("mutirao.task", "j1.1".into())],
            failed: None,
        };
        let told = span(&one);
        assert_eq!(told["traceId"], "00000000000000000000000000004bf9");
        assert_eq!((&told["spanId"], told.get("parentSpanId")), (&json!("0000000000000007"), None));
        assert_eq!(told["startTimeUnixNano"], "1700000000123000000");
        assert_eq!(told["endTimeUnixNano"], "1700000000124500000");
        assert_eq!(told["attributes"][0], json!({"key": "mutirao.task", "value": {"stringValue": "j1.1"}}));
        (one.parent, one.failed) = (1, Some("why".into()));
        let told = span(&one);
        assert_eq!(told["parentSpanId"], "0000000000000001");
        assert_eq!(told["status"], json!({"code": 2, "message": "why"}));
    }
}
