//! What expressions look at: JSON turned into their values once, and looked at by as many as like.

use std::collections::HashMap;
use std::fmt;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use serde_json::Value;

/// Nothing of it is copied for an evaluation.
pub struct Sight(Box<dyn Val>);

impl Sight {
    /// Whole numbers are CEL's plain ones, as [`value_of`](crate::value_of) has them.
    pub fn of(json: &Value) -> Self {
        Self(seen(json))
    }

    pub fn list<'j>(items: impl IntoIterator<Item = &'j Value>) -> Self {
        Self(Box::new(CelList::from(items.into_iter().map(seen).collect::<Vec<_>>())))
    }

    pub fn map<'n>(fields: impl IntoIterator<Item = (&'n str, Sight)>) -> Self {
        let entries = fields.into_iter().map(|(name, sight)| (CelMapKey::from(name.to_owned()), sight.0));
        Self(Box::new(CelMap::from(entries.collect::<HashMap<_, _>>())))
    }
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sight")
    }
}

fn seen(json: &Value) -> Box<dyn Val> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Box::new(CelInt::from(whole)),
            (None, Some(large)) => Box::new(CelUInt::from(large)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(seen).collect::<Vec<_>>())),
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| (CelMapKey::from(name.clone()), seen(value)));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

/// By name. A name may have dots: then it is found before a member of what comes before them.
pub(crate) struct Names<'s>(pub &'s [(&'s str, &'s Sight)]);

impl VariableResolver for Names<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let found = self.0.iter().find(|(name, _)| *name == variable);
        found.map(|(_, sight)| CowVal::Borrowed(sight.0.as_ref()))
    }
}
