//! Expressions that were compiled lately, by their texts. Who is given the text anew each time need not compile it each time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::{Expression, Flaw};

/// Some tens of kilobytes each, at most.
const MAX: usize = 256;

#[derive(Default)]
struct Lately {
    by_text: HashMap<Arc<str>, Arc<Expression>>,
    order: VecDeque<Arc<str>>,
}

static LATELY: LazyLock<Mutex<Lately>> = LazyLock::new(Mutex::default);

pub fn compiled(text: &str) -> Result<Arc<Expression>, Flaw> {
    if let Some(known) = LATELY.lock().by_text.get(text) {
        return Ok(known.clone());
    }
    let (text, expression): (Arc<str>, _) = (text.into(), Arc::new(Expression::compile(text)?));
    let mut lately = LATELY.lock();
    if lately.by_text.insert(text.clone(), expression.clone()).is_none() {
        lately.order.push_back(text);
    }
    while lately.order.len() > MAX {
        let oldest = lately.order.pop_front();
        oldest.and_then(|oldest| lately.by_text.remove(&oldest));
    }
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_is_not_compiled_again_and_only_so_many_are_kept() {
        let first = compiled("input.n + 1").unwrap();
        assert!(Arc::ptr_eq(&first, &compiled("input.n + 1").unwrap()));
        assert!(compiled("1 +").is_err() && compiled("1 +").is_err());
        for n in 0..=MAX {
            compiled(&format!("input.n + {n} + 1")).unwrap();
        }
        let lately = LATELY.lock();
        assert_eq!((lately.by_text.len(), lately.order.len()), (MAX, MAX));
    }
}
