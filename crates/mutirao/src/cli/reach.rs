//! Finding the API and the token: what was said, else what the local installation left in its data folder.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use mutirao_client::{Client, ClientError, Credentials, Trust};

use crate::config::{Config, Settings};
use crate::failure::{Exit, Failure};
use crate::tls;

/// Where a running installation writes the address of its API.
pub const ADDRESS_FILE: &str = "address";
/// Where an installation keeps its admin token.
pub const TOKEN_FILE: &str = "admin.token";

/// An API and how to come in.
#[derive(Debug)]
pub struct Found {
    pub url: String,
    pub credentials: Credentials,
    /// Whom to believe there.
    pub trust: Trust,
}

/// A client for commands.
pub fn client(config: &Config) -> Result<Client, Failure> {
    let found = find(&config.settings)?;
    let client = Client::trusting(&found.url, found.credentials, &found.trust)?;
    Ok(client.telling_unheard(warn_of_unheard).telling_waits(tell_of_wait))
}

/// Beside the answer, whoever reads it: programs too must not take a part for the whole.
fn warn_of_unheard(shards: &str) {
    // There is nobody to tell when stderr is closed.
    let _ = writeln!(
        std::io::stderr().lock(),
        "mutirao: warning: the owners of shards {shards} did not answer, so what only they know is missing; \
         `mutirao shard list` shows them"
    );
}

fn tell_of_wait(why: &ClientError, wait: Duration) {
    let _ = writeln!(std::io::stderr().lock(), "mutirao: {why}; trying again in {} s", wait.as_secs());
}

pub fn find(settings: &Settings) -> Result<Found, Failure> {
    let data = &settings.data.0;
    let (url, local) = match settings.url.set() {
        // Somebody who names an API needs no folder here, not even one that may be looked into.
        Some(url) => (url.0.clone(), local_address(data).unwrap_or_default()),
        None => {
            let local = local_address(data)?.ok_or_else(|| nothing_here(data))?;
            (local.clone(), Some(local))
        }
    };
    let is_local = local.as_deref().is_some_and(|local| same(local, &url));
    let token = match settings.token.set() {
        Some(token) => token.0.clone(),
        // The admin token of this machine is shown to the installation it belongs to and to nobody else.
        None if is_local => read_token(data)?,
        None => {
            let line = format!("no token for {url}; set MUTIRAO_TOKEN (`mutirao token create` makes one, over there)");
            return Err(Failure::new(Exit::NotAllowed, line));
        }
    };
    let trust = tls::trust(settings, &url, is_local.then(|| tls::pin_file(data)))?;
    Ok(Found { url, credentials: Credentials::Token(token), trust })
}

fn same(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}

/// Where the installation in this folder listens; none when none runs there.
pub fn local_address(data: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(data.join(ADDRESS_FILE)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) => match unusable(data, error.kind()) {
            Some(failure) => Err(failure),
            None => Ok(None),
        },
    }
}

/// A folder that is there and of no use is another matter than one that is not there.
fn unusable(data: &Path, why: ErrorKind) -> Option<Failure> {
    let shown = data.display();
    match why {
        ErrorKind::PermissionDenied => Some(Failure::new(
            Exit::NotAllowed,
            format!(
                "you may not look into {shown} (permission denied); ask its owner for a token and set MUTIRAO_URL and \
                 MUTIRAO_TOKEN"
            ),
        )),
        ErrorKind::NotADirectory => Some(Failure::usage(format!(
            "{shown} is a file, not the folder of an installation; set MUTIRAO_DATA or MUTIRAO_URL"
        ))),
        _ => None,
    }
}

fn nothing_here(data: &Path) -> Failure {
    let shown = data.display();
    let line = if data.join(TOKEN_FILE).exists() {
        format!("the installation in {shown} is not running; start it with `mutirao up`, or set MUTIRAO_URL")
    } else {
        format!("there is no installation in {shown}; start one with `mutirao up`, or set MUTIRAO_DATA or MUTIRAO_URL")
    };
    Failure::new(Exit::Unreachable, line)
}

pub fn read_token(data: &Path) -> Result<String, Failure> {
    let path = data.join(TOKEN_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => Err(Failure::new(Exit::NotAllowed, format!("{} is empty; remove it and start again", path.display()))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let line = format!("you may not read {}; ask its owner for a token and set MUTIRAO_TOKEN", path.display());
            Err(Failure::new(Exit::NotAllowed, line))
        }
        Err(error) => {
            Err(Failure::new(Exit::NotAllowed, format!("no token at {}: {error}; set MUTIRAO_TOKEN", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FromFlags, Given};

    fn settings(data: &Path, more: &[(&str, &str)]) -> Settings {
        let mut given = vec![Given::flag("--data", "data", data.display().to_string())];
        given.extend(more.iter().map(|(key, value)| Given::flag("--set", key, *value)));
        Config::load(&FromFlags { file: None, given }, []).unwrap().settings
    }

    fn installation() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(ADDRESS_FILE), "http://127.0.0.1:7171\n").unwrap();
        std::fs::write(dir.path().join(TOKEN_FILE), "mut_a_b\n").unwrap();
        dir
    }

    #[test]
    fn a_local_installation_is_found_by_its_folder() {
        let dir = installation();
        let found = find(&settings(dir.path(), &[])).unwrap();
        assert_eq!(found.url, "http://127.0.0.1:7171");
        assert!(matches!(found.credentials, Credentials::Token(token) if token == "mut_a_b"));
    }

    #[test]
    fn the_local_token_is_not_shown_to_a_stranger() {
        let dir = installation();
        let failure = find(&settings(dir.path(), &[("url", "http://elsewhere:1")])).unwrap_err();
        assert_eq!(failure.code(), 4);
        let named = find(&settings(dir.path(), &[("url", "http://elsewhere:1"), ("token", "t")])).unwrap();
        assert!(matches!(named.credentials, Credentials::Token(token) if token == "t"));
    }

    #[test]
    fn a_folder_that_may_not_be_looked_into_is_told_from_an_empty_one() {
        let Some(Failure::Said { code, line }) = unusable(Path::new("/x"), ErrorKind::PermissionDenied) else {
            panic!("nothing to say")
        };
        assert!(code == 4 && line.contains("permission denied") && line.contains("MUTIRAO_TOKEN"), "{line}");
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(find(&settings(file.path(), &[])).unwrap_err().code(), 2);
        assert!(find(&settings(file.path(), &[("url", "http://elsewhere:1"), ("token", "t")])).is_ok());
    }

    #[test]
    fn an_empty_folder_says_how_to_begin() {
        let dir = tempfile::tempdir().unwrap();
        let Failure::Said { code, line } = find(&settings(dir.path(), &[])).unwrap_err() else { panic!("silent") };
        assert!(code == 5 && line.contains("`mutirao up`"), "{line}");
    }
}
