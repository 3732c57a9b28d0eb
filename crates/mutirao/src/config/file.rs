//! The configuration file: TOML, flattened to dotted keys, each with its line.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::layers::{Given, Origin};

/// A configuration is a page of text; past this somebody named the wrong file.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub fn read(path: &Path) -> Result<Vec<Given>, ConfigError> {
    let unreadable = |why: String| ConfigError::Unreadable { file: path.into(), why };
    let size = std::fs::metadata(path).map_err(|e| unreadable(plain(&e)))?.len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has {size} bytes, the most is {FILE_BYTES_MAX}")));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(plain(&e)))?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            return Err(ConfigError::NotToml { file: path.into(), line, why: "it is not UTF-8".into() });
        }
    };
    parse(path, &text)
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "you may not read it".into(),
        _ => error.to_string(),
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Given>, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::NotToml {
        file: path.into(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        why: error.message().replace('\n', ", "),
    })?;
    let mut given = Vec::new();
    flatten(path, text, "", table.get_ref(), &mut given)?;
    Ok(given)
}

fn flatten(
    path: &Path,
    text: &str,
    above: &str,
    table: &DeTable<'_>,
    into: &mut Vec<Given>,
) -> Result<(), ConfigError> {
    for (name, value) in table {
        let key = if above.is_empty() { name.get_ref().to_string() } else { format!("{above}.{}", name.get_ref()) };
        let origin = Origin::File { path: path.into(), line: line_of(text, name.span().start) };
        let value = match value.get_ref() {
            DeValue::Table(inner) => {
                flatten(path, text, &key, inner, into)?;
                continue;
            }
            DeValue::String(string) => string.to_string(),
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.to_string(),
            DeValue::Boolean(boolean) => boolean.to_string(),
            other => {
                let why = format!("{} is not a value here; write a text or a number", other.type_str());
                return Err(ConfigError::Bad { key, origin, why });
            }
        };
        into.push(Given { key, value, origin });
    }
    Ok(())
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Vec<(String, String, usize)>, String> {
        let line = |origin: &Origin| if let Origin::File { line, .. } = origin { *line } else { 0 };
        let all = parse(Path::new("f.toml"), text).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(|g| (g.key, g.value, line(&g.origin))).collect())
    }

    #[test]
    fn tables_and_dotted_keys_are_the_same_and_know_their_lines() {
        let all = given("drain = 5\n\n[worker]\ncpus = 0.5\n").unwrap();
        assert_eq!(all, [("drain".into(), "5".into(), 1), ("worker.cpus".into(), "0.5".into(), 4)]);
        assert_eq!(given("worker.cpus = '250m'").unwrap()[0].0, "worker.cpus");
    }

    #[test]
    fn what_is_not_toml_names_file_and_line() {
        let error = given("drain = 5\nworker = [\n").unwrap_err();
        assert!(error.starts_with("f.toml, line ") && !error.contains('\n'), "{error}");
        assert!(given("a = 1\nb b\n").unwrap_err().starts_with("f.toml, line 2: not TOML"), "{error}");
    }

    #[test]
    fn a_list_is_no_value() {
        assert_eq!(
            given("listen = ['a']").unwrap_err(),
            "listen (f.toml, line 1): array is not a value here; write a text or a number"
        );
    }

    #[test]
    fn a_file_that_is_not_text_names_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.toml");
        std::fs::write(&path, b"drain = 5\n\xff\xfe\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2: not TOML: it is not UTF-8"), "{error}");
    }
}
