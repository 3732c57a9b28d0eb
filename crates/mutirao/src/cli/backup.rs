//! `mutirao backup …`: the whole installation as one file, and back. Works on the data folder and the database
//! themselves, so it needs neither a running manager nor a token; one that runs goes on.

mod bar;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mutirao_core::{Clock, SystemClock, Timestamp};
use mutirao_store::backup::{self, BackupError, Engine, Manifest, Present, SUFFIX, Stamp};

use super::out::Out;
use super::{Globals, size};
use crate::config::Given;
use crate::failure::{Exit, Failure};
use crate::{database, installation};
use bar::Bar;

#[derive(Debug, Args)]
pub struct BackupArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write everything to one file, while the installation goes on: tasks, outputs, tokens, keys of local workers
    Create {
        /// The file, which must not be there yet; or a folder, to have a name chosen
        to: PathBuf,
        #[command(flatten)]
        server: Server,
    },
    /// Bring everything back from such a file, after checking all of it
    Restore {
        file: PathBuf,
        /// Put it in the place of what is there, which is kept aside in the data folder (not so in PostgreSQL)
        #[arg(long)]
        replace: bool,
        /// Take the vhost of the broker from the installation that has it, which must be gone for good
        #[arg(long)]
        take_over: bool,
        #[command(flatten)]
        server: Server,
    },
    /// Read all of such a file and say what is in it, or what is wrong with it
    Verify { file: PathBuf },
}

#[derive(Debug, Args)]
struct Server {
    /// The PostgreSQL it is kept in; best given as MUTIRAO_DATABASE [default: SQLite in the data folder]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl Server {
    fn given(&self) -> Vec<Given> {
        self.database.iter().map(|url| Given::flag("--database", "database", url)).collect()
    }
}

pub async fn run(globals: &Globals, args: BackupArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let bar = Bar::new(out.shape);
    match args.verb {
        Verb::Create { to, server } => {
            let settings = globals.config(server.given())?.settings;
            database::refuse_elsewhere(&settings).map_err(|error| Failure::failed(error.to_string()))?;
            let place = database::place(&settings);
            let stamp = Stamp { program: env!("CARGO_PKG_VERSION").into(), at: SystemClock.now() };
            let file = chosen(to, stamp.at)?;
            let made = backup::create(&place, &file, &stamp, &bar).await;
            bar.clear();
            let manifest = made?;
            out.answer(&manifest, |manifest| format!("{}\n{}", file.display(), told(manifest)))?;
            out.note("it holds the admin token and the keys of local workers: keep it where only you can read it");
        }
        Verb::Restore { file, replace, take_over, server } => {
            let settings = globals.config(server.given())?.settings;
            let place = database::place(&settings);
            if take_over {
                // A slip of the pen must not cost the other one its mark.
                backup::verify(&file, &bar)?;
                // Before anything is replaced: whoever is at work there is not to find its database changed.
                installation::take_over(&settings).await?;
            }
            let present = if replace { Present::Replace } else { Present::Refuse };
            let restored = backup::restore(&file, &place, present, &bar).await;
            bar.clear();
            let manifest = restored?;
            database::restored(&settings).await.map_err(|error| Failure::failed(error.to_string()))?;
            out.answer(&manifest, told)?;
            let data = place.data.display();
            let database = if place.server.is_some() { " and the same database (MUTIRAO_DATABASE)" } else { "" };
            out.note(format!("restored to {data}; start it with `mutirao up --data {data}`{database}"));
            if settings.broker.set().is_some() && !take_over {
                out.note(
                    "it is another installation than the one it was made of: give it a vhost of its own, or, when that one \
                     is gone for good, restore with --take-over, or delete the exchange mutirao.installation in the old \
                     one's, as docs/operations.md says",
                );
            }
        }
        Verb::Verify { file } => {
            let verified = backup::verify(&file, &bar);
            bar.clear();
            out.answer(&verified?, told)?;
        }
    }
    Ok(())
}

/// In a folder: a name that sorts by time.
fn chosen(to: PathBuf, at: Timestamp) -> Result<PathBuf, Failure> {
    if to.is_dir() {
        let seconds = at.to_string().split('.').next().unwrap_or_default().replace(':', "-");
        return Ok(to.join(format!("{seconds}Z.{SUFFIX}")));
    }
    let folder = if to.as_os_str().as_encoded_bytes().ends_with(b"/") { Some(to.as_path()) } else { to.parent() };
    match folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(Failure::usage(format!("there is no folder {0}; make it: mkdir -p {0}", folder.display()))),
        None => Ok(to),
    }
}

fn told(manifest: &Manifest) -> String {
    let engine = match manifest.engine {
        Engine::Sqlite => "SQLite",
        Engine::Postgres => "PostgreSQL",
    };
    let schema: Vec<String> = manifest.schema.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let head = format!(
        "made {} by Mutirão {} from {engine} (tables: {})",
        manifest.created_at,
        manifest.program,
        schema.join(", ")
    );
    let parts = manifest.parts.iter();
    let parts = parts.map(|part| format!("  {:22} {:>10}  {}", part.name, part.items, size(part.bytes)));
    std::iter::once(head).chain(parts).collect::<Vec<_>>().join("\n")
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match &error {
            BackupError::Io { error: why, .. } if why.kind() == std::io::ErrorKind::NotFound => {
                Failure::new(Exit::NotFound, error.to_string())
            }
            _ => Failure::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gets_a_name_that_sorts_by_time_and_a_file_keeps_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let at = Timestamp(1_700_000_000_123);
        let named = chosen(dir.path().into(), at).unwrap();
        assert_eq!(named, dir.path().join("2023-11-14T22-13-20Z.mutirao-backup"));
        let file = dir.path().join("x");
        assert_eq!(chosen(file.clone(), at).unwrap(), file);
        assert_eq!(chosen("x".into(), at).unwrap(), PathBuf::from("x"));
        for away in [dir.path().join("away/x"), dir.path().join("away/")] {
            assert!(matches!(chosen(away, at), Err(Failure::Said { code: 2, line }) if line.contains("mkdir -p")));
        }
    }
}
