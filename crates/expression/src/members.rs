//! What an expression speaks of that is not its own, and which members of such a name: walks over the parsed expression. As
//! deep as the expression, whose depth is bounded before it is parsed.

use std::collections::BTreeSet;

use cel::common::ast::operators::INDEX;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, SelectExpr};

/// Names that it does not make itself: the `x` of a loop is its own, within the loop.
pub fn free(expression: &IdedExpr) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather(expression, &mut Vec::new(), &mut found);
    found
}

fn gather<'e>(at: &'e IdedExpr, own: &mut Vec<&'e str>, found: &mut BTreeSet<String>) {
    match &at.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) => {
            // The parser's own begin with a sign that nobody can write.
            if !name.starts_with('@') && !own.contains(&name.as_str()) {
                found.insert(name.clone());
            }
        }
        Expr::Select(select) => gather(&select.operand, own, found),
        Expr::Call(call) => {
            // `optional.of` is the name of a function.
            let target =
                call.target.as_deref().filter(|at| !matches!(&at.expr, Expr::Ident(name) if name == "optional"));
            target.into_iter().chain(&call.args).for_each(|part| gather(part, own, found));
        }
        Expr::List(list) => list.elements.iter().for_each(|one| gather(one, own, found)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| gather_entry(entry, own, found)),
        Expr::Struct(fields) => fields.entries.iter().for_each(|entry| gather_entry(entry, own, found)),
        Expr::Comprehension(one) => {
            [&one.iter_range, &one.accu_init].into_iter().for_each(|part| gather(part, own, found));
            let before = own.len();
            own.extend([one.iter_var.as_str(), one.accu_var.as_str()].into_iter().chain(one.iter_var2.as_deref()));
            [&one.loop_cond, &one.loop_step].into_iter().for_each(|part| gather(part, own, found));
            own.truncate(before);
            own.push(&one.accu_var);
            gather(&one.result, own, found);
            own.truncate(before);
        }
    }
}

fn gather_entry<'e>(entry: &'e IdedEntryExpr, own: &mut Vec<&'e str>, found: &mut BTreeSet<String>) {
    match &entry.expr {
        EntryExpr::StructField(field) => gather(&field.value, own, found),
        EntryExpr::MapEntry(pair) => {
            gather(&pair.key, own, found);
            gather(&pair.value, own, found);
        }
    }
}

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

/// What it asks of which member of `name`: `a` and `output` of `steps.a.output.rows`. Whether there is such a thing (`has`) may be
/// asked of anything.
pub fn fields_of(at: &IdedExpr, name: &str, found: &mut BTreeSet<(String, String)>) {
    let member = |one: &IdedExpr| match &one.expr {
        Expr::Select(of) if is_ident(&of.operand, name) => Some(of.field.clone()),
        Expr::Call(call) => indexed(call).filter(|(of, _)| is_ident(of, name)).map(|(_, member)| member),
        _ => None,
    };
    let mut parts: Vec<&IdedExpr> = Vec::new();
    match &at.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => {
            found.extend(member(&select.operand).filter(|_| !select.test).map(|of| (of, select.field.clone())));
            parts.push(&select.operand);
        }
        Expr::Call(call) => {
            if let Some((of, field)) = indexed(call) {
                found.extend(member(of).map(|of| (of, field)));
            }
            parts.extend(call.target.as_deref().into_iter().chain(&call.args));
        }
        Expr::List(list) => parts.extend(&list.elements),
        Expr::Map(map) => map.entries.iter().for_each(|entry| parts.extend(within(entry))),
        Expr::Struct(fields) => fields.entries.iter().for_each(|entry| parts.extend(within(entry))),
        Expr::Comprehension(one) => {
            parts.extend([&one.iter_range, &one.accu_init, &one.loop_cond, &one.loop_step, &one.result]);
        }
    }
    parts.into_iter().for_each(|part| fields_of(part, name, found));
}

fn is_ident(one: &IdedExpr, name: &str) -> bool {
    matches!(&one.expr, Expr::Ident(ident) if ident == name)
}

/// Of `a["b"]`, `a` and `b`.
fn indexed(call: &CallExpr) -> Option<(&IdedExpr, String)> {
    match &call.args[..] {
        [of, IdedExpr { expr: Expr::Literal(LiteralValue::String(member)), .. }] if call.func_name == INDEX => {
            Some((of, member.inner().to_owned()))
        }
        _ => None,
    }
}

fn within(entry: &IdedEntryExpr) -> Vec<&IdedExpr> {
    match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
    }
}

fn entries(entry: &IdedEntryExpr, name: &str, found: &mut BTreeSet<String>) -> bool {
    match &entry.expr {
        EntryExpr::StructField(field) => walk(&field.value, name, found),
        EntryExpr::MapEntry(pair) => walk(&pair.key, name, found) && walk(&pair.value, name, found),
    }
}

/// Writes `name["member"]` as `name.member`, wherever it is: both mean the same, and only the second is found as one name.
pub fn select(at: &mut IdedExpr, name: &str) {
    match &mut at.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(one) => select(&mut one.operand, name),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| select(target, name));
            call.args.iter_mut().for_each(|arg| select(arg, name));
            if call.func_name == INDEX
                && let [of, member] = &call.args[..]
                && let Expr::Literal(LiteralValue::String(member)) = &member.expr
                && matches!(&of.expr, Expr::Ident(ident) if ident == name)
            {
                let field = member.inner().to_owned();
                at.expr = Expr::Select(SelectExpr { operand: Box::new(of.clone()), field, test: false });
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(|one| select(one, name)),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| select_within(entry, name)),
        Expr::Struct(fields) => fields.entries.iter_mut().for_each(|entry| select_within(entry, name)),
        Expr::Comprehension(one) => {
            let one = &mut **one;
            for part in
                [&mut one.iter_range, &mut one.accu_init, &mut one.loop_cond, &mut one.loop_step, &mut one.result]
            {
                select(part, name);
            }
        }
    }
}

fn select_within(entry: &mut IdedEntryExpr, name: &str) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => select(&mut field.value, name),
        EntryExpr::MapEntry(pair) => {
            select(&mut pair.key, name);
            select(&mut pair.value, name);
        }
    }
}
