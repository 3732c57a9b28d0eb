//! Which members of a name an expression speaks of: a walk over the parsed expression. As deep as the expression, whose
//! depth is bounded before it is parsed.

use std::collections::BTreeSet;

use cel::common::ast::operators::INDEX;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue};

pub fn of(expression: &IdedExpr, name: &str) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    walk(expression, name, &mut found).then_some(found)
}

/// False if nobody can tell.
fn walk(at: &IdedExpr, name: &str, found: &mut BTreeSet<String>) -> bool {
    let is_name = |one: &IdedExpr| matches!(&one.expr, Expr::Ident(ident) if ident == name);
    match &at.expr {
        Expr::Unspecified | Expr::Literal(_) => true,
        Expr::Ident(ident) => ident != name,
        Expr::Select(select) if is_name(&select.operand) => {
            found.insert(select.field.clone());
            true
        }
        Expr::Select(select) => walk(&select.operand, name, found),
        Expr::Call(call) => {
            if call.func_name == INDEX
                && let [of, member] = &call.args[..]
                && let Expr::Literal(LiteralValue::String(member)) = &member.expr
                && is_name(of)
            {
                found.insert(member.inner().to_owned());
                return true;
            }
            let target = call.target.as_deref().is_none_or(|target| walk(target, name, found));
            target && call.args.iter().all(|arg| walk(arg, name, found))
        }
        Expr::List(list) => list.elements.iter().all(|one| walk(one, name, found)),
        Expr::Map(map) => map.entries.iter().all(|entry| entries(entry, name, found)),
        Expr::Struct(fields) => fields.entries.iter().all(|entry| entries(entry, name, found)),
        Expr::Comprehension(one) => [&one.iter_range, &one.accu_init, &one.loop_cond, &one.loop_step, &one.result]
            .into_iter()
            .all(|part| walk(part, name, found)),
    }
}

fn entries(entry: &IdedEntryExpr, name: &str, found: &mut BTreeSet<String>) -> bool {
    match &entry.expr {
        EntryExpr::StructField(field) => walk(&field.value, name, found),
        EntryExpr::MapEntry(pair) => walk(&pair.key, name, found) && walk(&pair.value, name, found),
    }
}
