//! The arguments of `submit` that are more than a word: each read, or refused with how to write it.

mod tasks;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use mutirao_core::job::Spread;
use mutirao_core::limits::BODY_BYTES_MAX;
use mutirao_core::quantity::Bytes;

use crate::cli::size;
use crate::failure::Failure;

/// Less than this without a unit is a slip: `--mem 4` was meant to be `4G`.
const MEMORY_WITHOUT_UNIT_MIN: Bytes = Bytes(1 << 20);

/// `1-100`
pub fn indexes(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("\"{text}\" is not a range of indexes: write it like 1-100");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let index = |text: &str| match text.trim().parse::<u64>() {
        Ok(index) => u32::try_from(index).map_err(|_| format!("{index} is too large: indexes go up to {}", u32::MAX)),
        Err(_) => Err(wrong()),
    };
    let range = (index(first)?, index(last)?);
    if range.0 > range.1 { Err(format!("{text} is empty: write the smaller index first")) } else { Ok(range) }
}

/// `512M`
pub fn memory(text: &str) -> Result<Bytes, String> {
    let memory: Bytes = text.parse().map_err(|error: mutirao_core::quantity::BadQuantity| error.to_string())?;
    let bare = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
    if bare && memory > Bytes(0) && memory < MEMORY_WITHOUT_UNIT_MIN {
        return Err(format!("{text} bytes is next to nothing: write it with a unit, like {text}M or {text}GiB"));
    }
    Ok(memory)
}

/// `NAME=VALUE`, or `NAME` for the value it has here, as `here` tells.
pub fn variables(
    given: &[String],
    here: &impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, Failure> {
    let variable = |text: &String| {
        if let Some((name, value)) = text.split_once('=') {
            return Ok((name.into(), value.into()));
        }
        let unset = || Failure::usage(format!("--env {text}: the variable is not set here; write --env {text}=VALUE"));
        Ok((text.clone(), here(text).ok_or_else(unset)?))
    };
    once_each("--env", given.iter().map(variable))
}

/// `NAME=VALUE`
pub fn labels(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let label = |text: &String| {
        let wrong = || Failure::usage(format!("--label \"{text}\" is not NAME=VALUE"));
        text.split_once('=').map(|(name, value)| (name.into(), value.into())).ok_or_else(wrong)
    };
    once_each("--label", given.iter().map(label))
}

/// Given twice, one of the two would be dropped without a word.
fn once_each(
    flag: &str,
    pairs: impl Iterator<Item = Result<(String, String), Failure>>,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut all = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair?;
        if all.contains_key(&name) {
            return Err(Failure::usage(format!("{flag} {name} is given twice; leave one of them out")));
        }
        all.insert(name, value);
    }
    Ok(all)
}

/// One entry for each line of a file.
pub fn entries(file: &Path) -> Result<Spread, Failure> {
    let text = text_of("--each-line", file, BODY_BYTES_MAX)?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(Failure::usage(format!("--each-line {}: there is no line in it", file.display())));
    }
    Ok(Spread::Entries(lines))
}

/// One task for each of a list in a JSON file.
pub fn tasks(file: &Path) -> Result<Spread, Failure> {
    let text = text_of("--from-json", file, BODY_BYTES_MAX)?;
    let named = |why: String| Failure::usage(format!("--from-json {}: {why}", file.display()));
    let tasks = tasks::read(&text).map_err(|error| named(error.to_string()))?;
    if tasks.is_empty() {
        return Err(named("there is no task in it".into()));
    }
    Ok(Spread::Tasks(tasks))
}

/// What is in a file, or comes on our stdin (`-`).
pub fn text_of(flag: &str, file: &Path, bytes_max: usize) -> Result<String, Failure> {
    let named = |why: String| Failure::usage(format!("{flag} {}: {why}", file.display()));
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(bytes_max as u64 + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(bytes_max as u64 + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        named(match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".into(),
            std::io::ErrorKind::PermissionDenied => "you may not read it".into(),
            _ => error.to_string(),
        })
    })?;
    if bytes.len() > bytes_max {
        return Err(named(format!("is longer than the {} that are taken", size(bytes_max as u64))));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        named(format!("line {line} is not UTF-8; other bytes go through a file that the task opens"))
    })
}
