//! Hooks as people write them down, with the kinds of machines that these make, and what is wrong with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_elastic::packing::{Amounts, Kind, Labels, Layer};
use serde::Deserialize;

use crate::ssh::spec::{Terms, UnknownKey};

/// Machines of one set of hooks: a mistake in a number should not cost a fortune.
pub const MACHINES_MAX: u32 = 1_000;
pub const KINDS_MAX: usize = 100;
/// Sets of hooks of one file.
pub const SETS_MAX: usize = 20;
/// Parts of a machine's name, which is to be a host's name: 63 letters in all.
const NAME_CHARS_MAX: usize = 12;
const MARK_CHARS_MAX: usize = 16;
const KIND_CHARS_MAX: usize = 16;
const WORDS_MAX: usize = 50;
/// Seldom enough for any cloud, often enough that what it has is known within a minute.
const LIST_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
const HOOK_MAX: Duration = Duration::from_secs(1_800);
/// As long as a resource manager waits for a node.
const READY_MAX: Duration = Duration::from_secs(1_200);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HooksSpec {
    /// For people, and part of the names of machines.
    #[serde(default = "own_name")]
    pub name: String,
    pub create: Words,
    pub list: Words,
    pub destroy: Words,
    /// What tells this installation's machines from others'; made once when it is not said. Resource managers of one
    /// installation that are on different machines are to have the same.
    pub mark: Option<String>,
    #[serde(default = "ten")]
    pub at_most: u32,
    #[serde(default = "ten_seconds")]
    pub list_every: Span,
    #[serde(default = "half_a_minute")]
    pub list_within: Span,
    #[serde(default = "five_minutes")]
    pub create_within: Span,
    #[serde(default = "two_minutes")]
    pub destroy_within: Span,
    pub kinds: Vec<KindSpec>,
    /// Where the file is: hooks are run there, and what it names is found from there.
    #[serde(skip)]
    pub beside: PathBuf,
}

/// A command: a program, or a program with its arguments. No shell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Words {
    One(String),
    Many(Vec<String>),
}

impl Words {
    pub fn all(&self) -> &[String] {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    fn check(&self, field: &str) -> Result<(), String> {
        let all = self.all();
        let usable = all.first().is_some_and(|program| !program.trim().is_empty())
            && all.len() <= WORDS_MAX
            && !all.iter().any(|word| word.contains('\0'));
        let sentence = matches!(self, Words::One(word) if word.trim().contains(' '));
        match (usable, sentence) {
            (true, false) => Ok(()),
            (true, true) => Err(format!(
                "{field}: a command with arguments is a list of words: [./hook, {field}]; there is no shell"
            )),
            (false, _) => Err(format!("{field}: a command is a program, or a list of a program and its arguments")),
        }
    }
}

/// A sort of machine that can be had.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSpec {
    pub name: String,
    /// What one gives to workers: a little less than it has.
    pub cpus: Cpus,
    pub memory: Bytes,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default = "cloud")]
    pub layer: Layer,
    /// By the hour, in whatever money is counted in.
    #[serde(default)]
    pub price: f64,
    #[serde(default)]
    pub terms: Terms,
    /// From asking for one until it takes work.
    #[serde(default = "one_minute")]
    pub boot: Span,
    /// How long one of terms `spot` is there before it is taken back, in the mean.
    pub interrupted_every: Option<Span>,
    /// Of this kind; else as many as of all together.
    pub at_most: Option<u32>,
    /// One that does not take work within this is destroyed.
    #[serde(default = "ten_minutes")]
    pub ready_within: Span,
    /// As for hosts of a pool: as whom ssh goes there, with which key, and where everything is kept there.
    pub user: Option<String>,
    pub key: Option<PathBuf>,
    #[serde(default)]
    pub unknown_key: UnknownKey,
    #[serde(default = "folder")]
    pub dir: String,
}

impl KindSpec {
    pub fn capacity(&self) -> Amounts {
        Amounts::of(self.cpus, self.memory)
    }

    pub fn kind(&self, available: u32) -> Kind {
        Kind {
            name: self.name.clone(),
            capacity: self.capacity(),
            labels: self.labels.clone(),
            layer: self.layer,
            price_micros_per_hour: (self.price * 1e6).round() as u64,
            market: self.terms.market(),
            boot: self.boot,
            interrupted_every: self.interrupted_every,
            available,
        }
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        plain("the name of a kind", name, KIND_CHARS_MAX)?;
        if self.cpus.milli == 0 || self.memory.0 == 0 {
            return Err(format!("{name}: a machine gives some cpus and some memory"));
        }
        if !(0.0..1e9).contains(&self.price) {
            return Err(format!("{name}: a price is what an hour costs, 0 or more"));
        }
        if self.at_most == Some(0) {
            return Err(format!("{name}: at_most is at least 1; leave the kind out to have none"));
        }
        if self.interrupted_every.is_some_and(|every| every.0.is_zero() || self.terms != Terms::Spot) {
            return Err(format!("{name}: interrupted_every is how long one of terms spot is there, in the mean"));
        }
        within(name, "ready_within", self.ready_within, (Duration::from_secs(1), READY_MAX))
    }
}

impl HooksSpec {
    pub fn kind(&self, name: &str) -> Option<&KindSpec> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    /// What the names of its machines begin with.
    pub fn prefix(&self, mark: &str) -> String {
        format!("mutirao-{mark}-{}-", self.name)
    }

    fn check(&self) -> Result<(), String> {
        plain("name", &self.name, NAME_CHARS_MAX)?;
        if let Some(mark) = &self.mark {
            plain("mark", mark, MARK_CHARS_MAX)?;
        }
        self.create.check("create")?;
        self.list.check("list")?;
        self.destroy.check("destroy")?;
        if !(1..=MACHINES_MAX).contains(&self.at_most) {
            return Err(format!("at_most is between 1 and {MACHINES_MAX}"));
        }
        let second = Duration::from_secs(1);
        within(&self.name, "list_every", self.list_every, LIST_EVERY)?;
        within(&self.name, "list_within", self.list_within, (second, LIST_EVERY.1))?;
        within(&self.name, "create_within", self.create_within, (second, HOOK_MAX))?;
        within(&self.name, "destroy_within", self.destroy_within, (second, HOOK_MAX))?;
        if self.kinds.is_empty() || self.kinds.len() > KINDS_MAX {
            return Err(format!("kinds: there are 1 to {KINDS_MAX} kinds of machines"));
        }
        Ok(())
    }
}

fn within(whose: &str, field: &str, span: Span, (least, most): (Duration, Duration)) -> Result<(), String> {
    match (least..=most).contains(&span.0) {
        true => Ok(()),
        false => Err(format!("{whose}: {field} is between {} and {}", Span(least), Span(most))),
    }
}

/// Part of a host's name, whatever cloud it is in.
fn plain(what: &str, text: &str, chars_max: usize) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let usable = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(letters)
        && text.chars().all(|c| letters(c) || c == '-')
        && text.len() <= chars_max;
    match usable {
        true => Ok(()),
        false => {
            Err(format!("\"{text}\" is not {what}: up to {chars_max} small letters, digits and -, a letter first"))
        }
    }
}

/// The hooks of a file, one set a document, or the first thing that is wrong with them.
pub fn read(documents: Vec<serde_json::Value>, beside: &Path) -> Result<Vec<HooksSpec>, String> {
    if documents.len() > SETS_MAX {
        return Err(format!("{} sets of hooks are more than {SETS_MAX}", documents.len()));
    }
    let (mut names, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let mut sets = Vec::with_capacity(documents.len());
    for document in documents {
        let mut set: HooksSpec = serde_json::from_value(document).map_err(|error| match error.to_string() {
            line if line.contains("untagged enum Words") => {
                "create, list and destroy are commands: a program, or a list of words".into()
            }
            line => line,
        })?;
        set.check()?;
        if !names.insert(set.name.clone()) {
            return Err(format!("{} is there twice; give each set of hooks a name of its own", set.name));
        }
        for (n, kind) in set.kinds.iter().enumerate() {
            kind.check().map_err(|why| format!("{}: kind {}: {why}", set.name, n + 1))?;
            if !kinds.insert(kind.name.clone()) {
                return Err(format!("{}: kind {}: {} is there twice", set.name, n + 1, kind.name));
            }
        }
        set.beside = beside.to_owned();
        sets.push(set);
    }
    Ok(sets)
}

fn own_name() -> String {
    "hooks".into()
}

fn ten() -> u32 {
    10
}

fn ten_seconds() -> Span {
    Span::secs(10)
}

fn half_a_minute() -> Span {
    Span::secs(30)
}

fn one_minute() -> Span {
    Span::secs(60)
}

fn two_minutes() -> Span {
    Span::secs(120)
}

fn five_minutes() -> Span {
    Span::secs(300)
}

fn ten_minutes() -> Span {
    Span::secs(600)
}

fn cloud() -> Layer {
    Layer::Cloud
}

pub(super) fn folder() -> String {
    ".mutirao".into()
}

#[cfg(test)]
mod tests {
    use mutirao_elastic::packing::Market;
    use serde_json::{Value, json};

    use super::*;

    fn set(more: Value) -> Value {
        let mut set = json!({ "create": ["./hook", "create"], "list": "./list", "destroy": "./destroy",
            "kinds": [{ "name": "small", "cpus": "2", "memory": "4GiB" }] });
        set.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        set
    }

    #[test]
    fn a_set_of_hooks_is_three_commands_and_kinds() {
        let kind = json!({ "name": "big", "cpus": "8", "memory": "32GiB", "price": 0.4, "terms": "spot",
            "interrupted_every": "6h", "boot": "90s", "at_most": 2 });
        let sets = read(vec![set(json!({})), set(json!({ "name": "other", "kinds": [kind] }))], Path::new("/etc"));
        let sets = sets.unwrap();
        assert_eq!(
            (sets[0].name.as_str(), sets[0].at_most, sets[0].list.all()),
            ("hooks", 10, &["./list".to_owned()][..])
        );
        assert_eq!(sets[0].prefix("ab12"), "mutirao-ab12-hooks-");
        let big = sets[1].kinds[0].kind(2);
        assert_eq!((big.price_micros_per_hour, big.market, big.boot), (400_000, Market::Spot, Span::secs(90)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let kind = |more: Value| {
            let mut kind = json!({ "name": "small", "cpus": "2", "memory": "4GiB" });
            kind.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "kinds": [kind] })
        };
        for (wrong, words) in [
            (json!({ "crate": "x" }), "unknown field `crate`"),
            (json!({ "create": "" }), "create: a command is"),
            (json!({ "create": "./hook create" }), "create: a command with arguments is a list of words"),
            (json!({ "list": 7 }), "are commands"),
            (json!({ "name": "My Cloud" }), "is not name: up to 12 small letters"),
            (json!({ "mark": "-x" }), "is not mark"),
            (json!({ "at_most": 0 }), "at_most is between 1 and 1000"),
            (json!({ "list_every": "10m" }), "list_every is between 1s and 30s"),
            (json!({ "kinds": [] }), "1 to 100 kinds"),
            (kind(json!({ "cpu": "2" })), "unknown field `cpu`"),
            (kind(json!({ "cpus": "0" })), "cpus"),
            (kind(json!({ "memory": "0" })), "kind 1: small: a machine gives some"),
            (kind(json!({ "memory": "lots" })), "lots"),
            (kind(json!({ "price": -1 })), "0 or more"),
            (kind(json!({ "at_most": 0 })), "at least 1"),
            (kind(json!({ "terms": "cheap" })), "unknown variant `cheap`"),
            (kind(json!({ "interrupted_every": "6h" })), "one of terms spot"),
            (kind(json!({ "ready_within": "2h" })), "ready_within is between 1s and 20m"),
            (kind(json!({ "name": "a-very-long-name-of-a-kind" })), "is not the name of a kind"),
        ] {
            let why = read(vec![set(wrong.clone())], Path::new("/")).unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{wrong}: {why}");
        }
        let why = read(vec![set(json!({})), set(json!({ "name": "other" }))], Path::new("/")).unwrap_err();
        assert!(why.contains("small is there twice"), "{why}");
    }
}
