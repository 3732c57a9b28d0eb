//! Settings: one table of them, four places they can come from, rising in precedence: defaults, a file, the environment,
//! the command line.
//!
//! - [`table`]: every setting, once. The typed [`Settings`], `config list` and the environment's names come from it.
//! - [`kinds`]: the types a setting can have.
//! - [`layers`]: what each place says, and which one wins.
//! - [`file`]: TOML with lines, so that an error can name its own.

mod file;
mod kinds;
mod layers;
mod table;

use std::path::{Path, PathBuf};

pub use kinds::{
    Auto, Between, InLayer, Labels, Leave, LogFormat, OwnChecker, OwnHost, Port, StreamFiles, StreamMover, Switch,
    WorkerWay,
};
pub use layers::{Given, Origin, Value, Values};
pub use table::{Secrecy, Setting, Settings, TABLE};

/// The file's name inside the data folder.
pub const FILE_NAME: &str = "mutirao.toml";

/// Why the settings cannot be used. Each is one line that names the setting, the place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{key} ({origin}) is not a setting; {hint}`mutirao config list` shows them all")]
    Unknown { key: String, origin: Origin, hint: String },
    #[error("{key} ({origin}): {why}")]
    Bad { key: String, origin: Origin, why: String },
    #[error("{}, line {line}: not TOML: {why}; mend that line", file.display())]
    NotToml { file: PathBuf, line: usize, why: String },
    #[error("cannot read the configuration file {}: {why}", file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("the variable {name} is not UTF-8; set it again or unset it")]
    NotText { name: String },
    #[error("\"{text}\" is not key=value; write it like --set worker.count=4")]
    NotAPair { text: String },
}

/// The settings, and where each came from.
#[derive(Debug)]
pub struct Config {
    pub settings: Settings,
    pub values: Values,
    /// Variables that look like ours and are no setting: most likely a slip of the pen.
    pub strange_env: Vec<String>,
}

/// What the command line says about settings.
#[derive(Clone, Debug, Default)]
pub struct FromFlags {
    /// `--config FILE`
    pub file: Option<PathBuf>,
    /// Flags that stand for one setting, and each `--set`.
    pub given: Vec<Given>,
}

impl Config {
    /// Reads every place. The environment is passed in, so that this can be tried with any.
    pub fn load(flags: &FromFlags, env: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let (from_env, strange_env) = layers::from_env(env);
        let above = Values::resolve([from_env.clone(), flags.given.clone()])?;
        let from_file = match &flags.file {
            Some(named) => file::read(named)?,
            None => beside_the_data(Path::new(above.text("data")))?,
        };
        let values = Values::resolve([from_file, from_env, flags.given.clone()])?;
        Ok(Self { settings: Settings::read(&values)?, values, strange_env })
    }
}

/// What settings come by that whoever started this process says over its stdin, where nobody else can read them.
pub const OVER_STDIN: &str = "stdin";

/// A secret that stands in the arguments, where every user of the machine can read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Exposed {
    pub key: &'static str,
    pub flag: &'static str,
    /// Where it would be safe.
    pub variable: String,
}

impl Config {
    /// Addresses without a password are no secret.
    pub fn exposed(&self) -> Vec<Exposed> {
        let secrets = TABLE.iter().filter(|setting| setting.secrecy == Secrecy::Masked);
        let exposed = secrets.filter_map(|setting| match self.values.get(setting) {
            Value { text, origin: Origin::Flag(flag) }
                if *flag != OVER_STDIN && (!text.contains("://") || has_password(text)) =>
            {
                Some(Exposed { key: setting.key, flag, variable: setting.env() })
            }
            _ => None,
        });
        exposed.collect()
    }
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let in_query = rest.split_once('?').is_some_and(|(_, query)| query.contains("password="));
    in_query || user.is_some_and(|user| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()))
}

fn beside_the_data(data: &Path) -> Result<Vec<Given>, ConfigError> {
    let path = data.join(FILE_NAME);
    // A folder that may not be looked into is reported by whoever needs it, with a better remedy.
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let given = file::read(&path)?;
    match given.iter().find(|given| given.key == "data") {
        Some(Given { key, origin, .. }) => Err(ConfigError::Bad {
            key: key.clone(),
            origin: origin.clone(),
            why: "the file in the data folder cannot move the data folder; use --data or MUTIRAO_DATA".into(),
        }),
        None => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn each_place_outranks_the_ones_below_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), "[worker]\ncount = 3\nqueue = \"q\"\n[log]\nlevel = 'warn'\n")
            .unwrap();
        let data = dir.path().display().to_string();
        let flags = FromFlags { file: None, given: vec![Given::flag("--set", "worker.count", "5")] };
        let config = Config::load(
            &flags,
            env(&[("MUTIRAO_DATA", &data), ("MUTIRAO_WORKER_COUNT", "4"), ("MUTIRAO_LOG", "debug")]),
        )
        .unwrap();
        let shown = |key: &str| (config.values.text(key).to_owned(), config.values.origin(key).to_string());
        assert_eq!(shown("worker.count"), ("5".into(), "--set".into()));
        assert_eq!(shown("log.level"), ("debug".into(), "MUTIRAO_LOG".into()));
        assert_eq!(shown("worker.queue").0, "q");
        assert!(shown("worker.queue").1.ends_with("mutirao.toml, line 3"), "{}", shown("worker.queue").1);
        assert_eq!(shown("listen"), ("127.0.0.1:7070".into(), "default".into()));
        assert_eq!(config.settings.worker_count.0, 5);
    }

    #[test]
    fn a_file_that_is_named_and_not_there_is_an_error_but_a_missing_default_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let named = FromFlags { file: Some(dir.path().join("no.toml")), given: vec![] };
        assert!(matches!(Config::load(&named, []), Err(ConfigError::Unreadable { .. })));
        let data = env(&[("MUTIRAO_DATA", &dir.path().display().to_string())]);
        assert!(Config::load(&FromFlags::default(), data).is_ok());
    }

    #[test]
    fn a_password_in_the_arguments_is_told_and_one_in_the_environment_is_not() {
        let exposed = |given: Vec<Given>, vars: &[(&str, &str)]| {
            let config = Config::load(&FromFlags { file: None, given }, env(vars)).unwrap();
            config
                .exposed()
                .into_iter()
                .map(|exposed| (exposed.key, exposed.flag, exposed.variable))
                .collect::<Vec<_>>()
        };
        let with = "postgres://ana:s3cret@db/lab";
        let found = exposed(vec![Given::flag("--database", "database", with)], &[]);
        assert_eq!(found, [("database", "--database", "MUTIRAO_DATABASE".to_owned())]);
        let found = exposed(vec![Given::flag("--set", "token", "s3cret")], &[]);
        assert_eq!(found, [("token", "--set", "MUTIRAO_TOKEN".to_owned())]);
        assert_eq!(exposed(vec![], &[("MUTIRAO_DATABASE", with)]), []);
        assert_eq!(exposed(vec![Given::flag("--database", "database", "postgres://ana@db/lab")], &[]), []);
        assert_eq!(exposed(vec![Given::flag(OVER_STDIN, "database", with)], &[]), []);
        let queried = "postgres://ana@db/lab?password=s3cret";
        assert_eq!(exposed(vec![Given::flag("--database", "database", queried)], &[]).len(), 1);
    }

    #[test]
    fn a_strange_variable_is_told_and_those_of_a_task_are_not() {
        let vars = env(&[("MUTIRAO_WORKER_CUONT", "4"), ("MUTIRAO_TASK_ID", "j.1"), ("PATH", "/bin")]);
        let config = Config::load(&FromFlags::default(), vars).unwrap();
        assert_eq!(config.strange_env, ["MUTIRAO_WORKER_CUONT"]);
    }
}
