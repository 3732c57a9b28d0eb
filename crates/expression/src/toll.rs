//! What an expression may cost. A list in a list in a list, or a text that is doubled sixteen times, is written in a line and
//! would keep a machine busy for ever, so every expression pays for what it touches while it runs, and ends when it has spent
//! its budget.
//!
//! The parsed expression is rewritten once: whatever a loop goes over, whatever is put into a list or a map, and whatever a
//! function is given goes through [`PAY`], which takes one unit for each value in it and for each 16 bytes of text. Patterns
//! are compiled each time they are used and cost more. How long a list is can be had without looking into it, and costs one.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use cel::common::ast::operators::{
    CONDITIONAL, INDEX, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, NOT_STRICTLY_FALSE, OPT_INDEX, OPT_SELECT,
};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr};
use cel::common::types::{CelBytes, CelList, CelMap, CelString, DYN_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};

/// Of one evaluation. Some tenths of a second on a small machine.
pub const BUDGET: u64 = 1_000_000;
/// No name that people can write.
const PAY: &str = "@pay";
const PAY_PATTERN: &str = "@pay_pattern";
/// For whoever looks at the value itself, and not at what is in it.
const PAY_OUTSIDE: &str = "@pay_outside";
const BYTES_A_UNIT: usize = 16;
/// Of a pattern: for each character, and if it says how often something comes, which may make it large.
const PATTERN_CHAR: u64 = 1_000;
const PATTERN_COUNTED: u64 = 200_000;

thread_local! {
    /// An evaluation stays on its thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

pub static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for (name, op) in
        [(PAY, pay as cel::common::functions::Function), (PAY_PATTERN, pay_pattern), (PAY_OUTSIDE, pay_outside)]
    {
        // Names of our own, once each.
        let added = env.add_overload(name, name, vec![DYN_TYPE], op);
        debug_assert!(added.is_ok());
    }
    for (_, name, op) in crate::mixed::OPERATORS {
        let added = env.add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], op);
        debug_assert!(added.is_ok());
    }
    #[cfg(test)]
    env.add_overload("break_down", "break_down", vec![DYN_TYPE], |_| panic!("as asked")).unwrap();
    Arc::new(env)
});

/// Runs it with so much to spend; none if that was not enough.
pub fn within_budget<T>(units: u64, evaluate: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(units);
    let value = evaluate();
    (LEFT.get() > 0).then_some(value)
}

/// The same expression, which pays.
pub fn levied(at: &IdedExpr) -> IdedExpr {
    let expr = match &at.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => at.expr.clone(),
        Expr::Select(select) => {
            let mut select = select.clone();
            select.operand = Box::new(levied(&select.operand));
            Expr::Select(select)
        }
        Expr::Call(call) => Expr::Call(levied_call(call)),
        Expr::List(list) => {
            let mut list = list.clone();
            list.elements.iter_mut().for_each(|one| *one = paid(one, PAY));
            Expr::List(list)
        }
        Expr::Map(map) => {
            let mut map = map.clone();
            map.entries.iter_mut().for_each(levy_entry);
            Expr::Map(map)
        }
        Expr::Struct(fields) => {
            let mut fields = fields.clone();
            fields.entries.iter_mut().for_each(levy_entry);
            Expr::Struct(fields)
        }
        Expr::Comprehension(one) => {
            let mut one = one.clone();
            one.iter_range = paid(&one.iter_range, PAY);
            for part in [&mut one.accu_init, &mut one.loop_cond, &mut one.loop_step, &mut one.result] {
                *part = levied(part);
            }
            Expr::Comprehension(one)
        }
    };
    IdedExpr { id: at.id, expr }
}

fn levied_call(call: &CallExpr) -> CallExpr {
    let mut call = call.clone();
    let free = is_free(&call);
    let is_pattern = call.func_name == "matches";
    let through = if call.func_name == "size" { PAY_OUTSIDE } else { PAY };
    let last = call.args.len().saturating_sub(1);
    for (n, arg) in call.args.iter_mut().enumerate() {
        *arg = match (free, is_pattern && n == last) {
            (true, _) => levied(arg),
            (false, true) => paid(arg, PAY_PATTERN),
            (false, false) => paid(arg, through),
        };
    }
    if let Some(target) = &mut call.target {
        // `optional.of` is a name, not something of a value.
        let is_name = matches!(&target.expr, Expr::Ident(name) if name == "optional");
        **target = if is_name { levied(target) } else { paid(target, through) };
    }
    call.func_name = crate::mixed::named(&call);
    call
}

/// These look at no more than a truth or a place; what they choose is borrowed.
fn is_free(call: &CallExpr) -> bool {
    [CONDITIONAL, LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, NOT_STRICTLY_FALSE, INDEX, OPT_INDEX, OPT_SELECT]
        .contains(&call.func_name.as_str())
}

fn levy_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => field.value = paid(&field.value, PAY),
        EntryExpr::MapEntry(pair) => {
            pair.key = paid(&pair.key, PAY);
            pair.value = paid(&pair.value, PAY);
        }
    }
}

fn paid(at: &IdedExpr, through: &str) -> IdedExpr {
    let is_own = |name: &str| name.starts_with('@');
    match &at.expr {
        // What a loop gathers is paid for as it is put in.
        Expr::Ident(name) if is_own(name) => at.clone(),
        Expr::Literal(_) if through != PAY_PATTERN => at.clone(),
        // What these come to is no more than what they paid for. It also keeps the expression as shallow as it was.
        Expr::List(_) | Expr::Map(_) | Expr::Struct(_) if through != PAY_PATTERN => levied(at),
        Expr::Call(call) if through != PAY_PATTERN && !is_free(call) => levied(at),
        _ => {
            let call = CallExpr { func_name: through.into(), target: None, args: vec![levied(at)] };
            IdedExpr { id: at.id, expr: Expr::Call(call) }
        }
    }
}

fn pay<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    charge_for(&*value)?;
    Ok(value)
}

fn pay_pattern<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    if let Some(text) = value.downcast_ref::<CelString>() {
        let counted = if text.inner().contains('{') { PATTERN_COUNTED } else { 0 };
        charge((text.inner().len() as u64).saturating_mul(PATTERN_CHAR).saturating_add(counted))?;
    }
    Ok(value)
}

fn pay_outside<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or(ExecutionError::MissingArgumentOrTarget)?;
    let is_one_of_many = value.downcast_ref::<CelList>().is_some() || value.downcast_ref::<CelMap>().is_some();
    if is_one_of_many {
        charge(1)?
    } else {
        charge_for(&*value)?
    }
    Ok(value)
}

/// What it takes to make a value of it.
pub fn charge_json(json: &serde_json::Value) -> Result<(), ExecutionError> {
    match json {
        serde_json::Value::String(text) => charge(1 + (text.len() / BYTES_A_UNIT) as u64),
        serde_json::Value::Array(items) => charge(1).and_then(|()| items.iter().try_for_each(charge_json)),
        serde_json::Value::Object(fields) => {
            charge(1)?;
            fields.values().try_for_each(|value| charge(1).and_then(|()| charge_json(value)))
        }
        _ => charge(1),
    }
}

fn charge(units: u64) -> Result<(), ExecutionError> {
    let left = LEFT.get().saturating_sub(units);
    LEFT.set(left);
    match left {
        0 => Err(ExecutionError::InternalError("it costs too much".into())),
        _ => Ok(()),
    }
}

/// As deep as the value, which was made within budget, or read from JSON, whose reader has a bound.
fn charge_for(value: &dyn Val) -> Result<(), ExecutionError> {
    let text = |bytes: usize| 1 + (bytes / BYTES_A_UNIT) as u64;
    if let Some(list) = value.downcast_ref::<CelList>() {
        charge(1)?;
        return list.inner().iter().try_for_each(|one| charge_for(one.as_ref()));
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        charge(1)?;
        return map.inner().iter().try_for_each(|(_, one)| charge(1).and_then(|()| charge_for(one.as_ref())));
    }
    let bytes = value.downcast_ref::<CelString>().map(|text| text.inner().len());
    charge(text(bytes.or_else(|| value.downcast_ref::<CelBytes>().map(|bytes| bytes.inner().len())).unwrap_or(0)))
}
