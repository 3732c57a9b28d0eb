//! One operator: what it does with what flows in, and what flows out.

use std::sync::Arc;

use super::{Flowing, Keys, SNAPSHOT, compiled, field};
use crate::definition::Fault;
use crate::definition::aggregates;
use crate::definition::operators::{DoesSpec, OperatorSpec};
use crate::definition::spec::Keeping;
use crate::definition::windows::WindowSpec;
use crate::definition::yaml::Word;
use crate::expression::Expression;
use crate::graph::{Does, Operator, Port};
use crate::schema::{Field, Kind, Schema, SchemaError};
use crate::window::{Grouping, WindowError};

pub fn operator(
    spec: &OperatorSpec,
    whole: Keeping,
    inputs: Vec<Port>,
    given: &[Flowing],
    faults: &mut Vec<Fault>,
) -> Option<(Operator, Flowing)> {
    let first = given.first()?;
    let input = first.schema.clone();
    let (does, out) = match &spec.does {
        DoesSpec::Filter(word) => (filter(word, &input, faults)?, first.clone()),
        DoesSpec::Map(pairs) => map(spec, pairs, first, faults)?,
        DoesSpec::Add(pairs) => add(spec, pairs, first, faults)?,
        DoesSpec::KeyBy(words) => key_by(words, &input, faults)?,
        DoesSpec::Union => (Does::Union, union(spec, given, faults)?),
        DoesSpec::Window(window) => grouped(spec, window, first, faults)?,
    };
    if let (true, Some(place)) = (does.is_stateless(), spec.snapshot_at) {
        faults.push(Fault::new(place, "it keeps nothing that a snapshot could be taken of").hint("leave snapshot out"));
    }
    let snapshot = spec.keeping.snapshot.or(whole.snapshot).unwrap_or(SNAPSHOT);
    let operator = Operator {
        name: spec.name.text.clone(),
        inputs,
        snapshot: (!does.is_stateless()).then_some(snapshot),
        does,
        input,
        output: out.schema.clone(),
        keys: if let Keys::By(keys) = &out.keys { keys.clone() } else { Vec::new() },
        replicas: spec.keeping.replicas.or(whole.replicas).unwrap_or(1),
    };
    Some((operator, out))
}

fn filter(word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Does> {
    let expression = compiled(word, schema, faults)?;
    if expression.kind() != Kind::Bool {
        let fault = Fault::new(word.place, format!("a filter is true or false, and this is {}", expression.kind()));
        faults.push(fault.hint("compare it with something: volts > 200"));
        return None;
    }
    Some(Does::Filter(expression))
}

fn map(
    spec: &OperatorSpec,
    pairs: &[(Word, Word)],
    given: &Flowing,
    faults: &mut Vec<Fault>,
) -> Option<(Does, Flowing)> {
    let all: Vec<Option<Expression>> = pairs.iter().map(|(_, word)| compiled(word, &given.schema, faults)).collect();
    let expressions = all.into_iter().collect::<Option<Vec<Expression>>>()?;
    let fields = pairs.iter().zip(&expressions);
    let fields = fields.map(|((name, _), made)| Field { name: name.text.clone(), kind: made.kind() }).collect();
    mapped(spec, pairs, fields, expressions, given, faults)
}

/// All fields that there are, then those that are new; a field that is there already is replaced.
fn add(
    spec: &OperatorSpec,
    pairs: &[(Word, Word)],
    given: &Flowing,
    faults: &mut Vec<Fault>,
) -> Option<(Does, Flowing)> {
    let all: Vec<Option<Expression>> = pairs.iter().map(|(_, word)| compiled(word, &given.schema, faults)).collect();
    let added = all.into_iter().collect::<Option<Vec<Expression>>>()?;
    let (mut fields, mut expressions) = (given.schema.fields.clone(), Vec::new());
    for field in &given.schema.fields {
        expressions.push(Expression::compile(&field.name, &given.schema).ok()?);
    }
    for ((name, _), made) in pairs.iter().zip(added) {
        let field = Field { name: name.text.clone(), kind: made.kind() };
        match fields.iter().position(|there| there.name == name.text) {
            Some(n) => (fields[n], expressions[n]) = (field, made),
            None => {
                fields.push(field);
                expressions.push(made);
            }
        }
    }
    mapped(spec, pairs, fields, expressions, given, faults)
}

fn mapped(
    spec: &OperatorSpec,
    pairs: &[(Word, Word)],
    fields: Vec<Field>,
    expressions: Vec<Expression>,
    given: &Flowing,
    faults: &mut Vec<Fault>,
) -> Option<(Does, Flowing)> {
    let schema = checked(spec, pairs, fields, faults)?;
    let keys = match &given.keys {
        Keys::By(keys) => {
            let after = |key: &usize| expressions.iter().position(|made| made.field() == Some(*key)).ok_or(*key);
            match keys.iter().map(after).collect::<Result<Vec<usize>, usize>>() {
                Ok(keys) => Keys::By(keys),
                Err(lost) => {
                    let field = given.schema.fields[lost].name.clone();
                    Keys::Lost { operator: spec.name.text.clone(), field }
                }
            }
        }
        other => other.clone(),
    };
    Some((Does::Map(expressions), Flowing { schema: Arc::new(schema), keys }))
}

fn checked(spec: &OperatorSpec, pairs: &[(Word, Word)], fields: Vec<Field>, faults: &mut Vec<Fault>) -> Option<Schema> {
    let error = match Schema::checked(fields) {
        Ok(schema) => return Some(schema),
        Err(error) => error,
    };
    let wrong = match &error {
        SchemaError::Twice(name) | SchemaError::Name(name) | SchemaError::Reserved(name) => Some(name),
        SchemaError::Empty | SchemaError::TooMany(_) => None,
    };
    let place = pairs.iter().find(|(name, _)| Some(&name.text) == wrong).map(|(name, _)| name.place);
    faults.push(Fault::new(place.unwrap_or(spec.name.place), error.to_string()));
    None
}

fn key_by(words: &[Word], schema: &Arc<Schema>, faults: &mut Vec<Fault>) -> Option<(Does, Flowing)> {
    let before = faults.len();
    let mut keys: Vec<usize> = Vec::new();
    for word in words {
        let Some(key) = field(word, schema, faults) else { continue };
        let kind = schema.fields[key].kind;
        if keys.contains(&key) {
            faults.push(Fault::new(word.place, format!("\"{}\" is there twice", word.text)));
        } else if !kind.groups() {
            let fault =
                Fault::new(word.place, format!("events cannot be grouped by \"{}\", which is {kind}", word.text));
            faults.push(fault.hint(format!("make it whole first: add: {{ level: int({}) }}", word.text)));
        }
        keys.push(key);
    }
    if faults.len() > before {
        return None;
    }
    let by = if keys.is_empty() { Keys::None } else { Keys::By(keys.clone()) };
    Some((Does::KeyBy(keys), Flowing { schema: schema.clone(), keys: by }))
}

fn union(spec: &OperatorSpec, given: &[Flowing], faults: &mut Vec<Fault>) -> Option<Flowing> {
    let first = given.first()?;
    let mut same = true;
    for (word, other) in spec.inputs.iter().zip(given).skip(1) {
        if other.schema != first.schema {
            let what = format!("it has {}, and \"{}\" has {}", other.schema, spec.inputs[0].text, first.schema);
            faults.push(Fault::new(word.place, what).hint("have a map make the same fields in the same order"));
            same = false;
        }
    }
    let keys = match given.iter().all(|other| other.keys == first.keys) {
        true => first.keys.clone(),
        false => Keys::None,
    };
    same.then(|| Flowing { schema: first.schema.clone(), keys })
}

fn grouped(
    spec: &OperatorSpec,
    window: &WindowSpec,
    given: &Flowing,
    faults: &mut Vec<Fault>,
) -> Option<(Does, Flowing)> {
    let schema = &given.schema;
    let keys = match &given.keys {
        Keys::None => Vec::new(),
        Keys::By(keys) => keys.clone(),
        Keys::Lost { operator, field } => {
            let what = format!("events were kept apart by \"{field}\", and \"{operator}\" leaves it out or changes it");
            let fault = Fault::new(spec.inputs[0].place, what);
            faults.push(fault.hint(format!("write {field}: {field} in \"{operator}\", or key_by behind it")));
            return None;
        }
    };
    let extent = window.extent.window(schema, faults);
    let aggregates = window.aggregates.iter();
    let aggregates: Vec<Option<_>> =
        aggregates.map(|(name, text)| aggregates::read(name, text, schema, faults)).collect();
    let aggregates = aggregates.into_iter().collect::<Option<Vec<_>>>()?;
    let grouping = Grouping { keys: keys.clone(), window: extent?, aggregates, limits: window.limits };
    let output = match grouping.output(schema) {
        Ok(output) => output,
        Err(error) => {
            let wrong = match &error {
                WindowError::Schema(
                    SchemaError::Twice(name) | SchemaError::Name(name) | SchemaError::Reserved(name),
                ) => Some(name),
                WindowError::Aggregate { name, .. } => Some(name),
                _ => None,
            };
            let named = window.aggregates.iter().find(|(name, _)| Some(&name.text) == wrong);
            let fault = Fault::new(named.map_or(window.place, |(name, _)| name.place), error.to_string());
            faults.push(match error {
                WindowError::Schema(SchemaError::Twice(_)) => {
                    fault.hint("the fields of the key come out too, and start and end of a window by time")
                }
                _ => fault,
            });
            return None;
        }
    };
    let out = if keys.is_empty() { Keys::None } else { Keys::By((0..keys.len()).collect()) };
    Some((Does::Window(grouping), Flowing { schema: Arc::new(output), keys: out }))
}
