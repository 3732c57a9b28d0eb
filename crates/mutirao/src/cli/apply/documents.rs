//! Files of declarations, read as the API would read them: whatever the format, each document becomes JSON.

use std::io::Read;
use std::path::Path;

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Number, Value};

/// One thing that a file declares, and where.
#[derive(Debug)]
pub struct Document {
    pub place: String,
    pub value: Value,
    /// As it is written, and the line of the file in which that begins; of what is no YAML, as JSON.
    pub text: Written,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub text: String,
    pub line: usize,
}

/// The documents of a file, or what is wrong with it, in one line; `-` is YAML from stdin.
pub fn read(file: &Path, bytes_max: usize) -> Result<Vec<Document>, String> {
    let shown = file.display().to_string();
    let wrong = |what: String| what.lines().collect::<Vec<_>>().join(" ");
    let text = text_of(file, bytes_max as u64).map_err(|error| wrong(error.to_string()))?;
    let values = match file.extension().and_then(|extension| extension.to_str()) {
        _ if shown == "-" => yaml(&text).map_err(wrong)?,
        Some("yaml" | "yml") => yaml(&text).map_err(wrong)?,
        Some("toml") => vec![toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?],
        Some("json") => vec![serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?],
        _ => return Err(wrong("its name must end in .yaml, .toml or .json".into())),
    };
    if values.is_empty() {
        return Err(wrong("there is nothing in it".into()));
    }
    let several = values.len() > 1;
    let place = |n: usize| if several { format!("{shown}, document {}", n + 1) } else { shown.clone() };
    let pieces = pieces(&text);
    let told = pieces.len() == values.len() && file.extension().is_none_or(|kind| kind == "yaml" || kind == "yml");
    let mut written = pieces.into_iter().filter(|_| told);
    let document = |(n, value): (usize, Value)| {
        let text = written.next().unwrap_or_else(|| Written { text: value.to_string(), line: 1 });
        Document { place: place(n), value, text }
    };
    Ok(values.into_iter().enumerate().map(document).collect())
}

/// The documents of a text that have something in them. A line that begins with `---` ends a document whatever is in it, a
/// block of text among it.
fn pieces(text: &str) -> Vec<Written> {
    let mut all = vec![Written { text: String::new(), line: 1 }];
    for (n, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            all.push(Written { text: String::new(), line: n + 1 });
        }
        if let Some(last) = all.last_mut() {
            last.text += line;
        }
    }
    all.retain(|piece| matches!(yaml(&piece.text), Ok(values) if !values.is_empty()));
    all
}

fn text_of(file: &Path, bytes_max: u64) -> std::io::Result<String> {
    let mut text = String::new();
    let mut reader: Box<dyn Read> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(file)?),
    };
    let read = reader.by_ref().take(bytes_max + 1).read_to_string(&mut text)?;
    if read as u64 > bytes_max {
        return Err(std::io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(text)
}

fn yaml(text: &str) -> Result<Vec<Value>, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    documents.iter().filter(|document| !document.is_null()).map(json).collect()
}

fn json(node: &Yaml<'_>) -> Result<Value, String> {
    Ok(match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Value(Scalar::FloatingPoint(value)) => Number::from_f64(value.0)
            .map(Value::Number)
            .ok_or_else(|| format!("{value} is not a number to work with"))?,
        Yaml::Value(Scalar::String(text)) => text.as_ref().into(),
        Yaml::Sequence(items) => items.iter().map(json).collect::<Result<_, _>>()?,
        Yaml::Mapping(fields) => {
            let field = |(name, value): (&Yaml<'_>, &Yaml<'_>)| Ok((key(name)?, json(value)?));
            fields.iter().map(field).collect::<Result<Map<_, _>, String>>()?.into()
        }
        Yaml::Tagged(..) => return Err("tags (!like-this) mean nothing here; leave them out".into()),
        _ => return Err("it is not YAML that can be read".into()),
    })
}

/// Names of fields are texts; a name that looks like something else is meant as one all the same.
fn key(node: &Yaml<'_>) -> Result<String, String> {
    match json(node)? {
        Value::String(text) => Ok(text),
        Value::Array(_) | Value::Object(_) | Value::Null => Err("the name of a field must be a text".into()),
        other => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_becomes_what_the_api_reads() {
        let text = "a: 1\nb: [1.5, yes, true, ~]\nc: { d: 10m, 7: x }\n---\n'e': |\n  two\n  lines\n---\n";
        let expected =
            [json!({"a": 1, "b": [1.5, "yes", true, null], "c": {"d": "10m", "7": "x"}}), json!({"e": "two\nlines\n"})];
        assert_eq!(yaml(text).unwrap(), expected);
    }

    #[test]
    fn documents_are_cut_apart_as_they_are_written() {
        let text = "# first\na: 1\n---\n# nothing\n---\nb: |\n  --- no\n  more\n--- \nc: 2\n";
        let cut: Vec<(usize, String)> = pieces(text).into_iter().map(|piece| (piece.line, piece.text)).collect();
        let expected = [(1, "# first\na: 1\n"), (5, "---\nb: |\n  --- no\n  more\n"), (9, "--- \nc: 2\n")];
        assert_eq!(cut, expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn what_is_not_yaml_is_told() {
        for (text, words) in [("a: [1", "line"), ("a: 1\na: 2", "uplicat"), ("a: !x 1", "tags"), ("a: .inf", "inf")] {
            let error = yaml(text).unwrap_err();
            assert!(error.contains(words), "{text} gave {error}");
        }
    }
}
