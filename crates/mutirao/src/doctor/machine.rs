//! What can be seen without asking the API: settings, folder, disk, kernel.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::cli::{TOKEN_FILE, size};
use crate::config::{Config, Origin};

/// Below this the store will soon refuse writes.
const FREE_BYTES_LOW: u64 = 1 << 30;
const FREE_BYTES_GONE: u64 = 100 << 20;
/// A manager with a thousand workers and clients holds this many files open.
const OPEN_FILES_LOW: u64 = 1_024;

pub fn look(config: &Config) -> Vec<Finding> {
    let data = &config.settings.data.0;
    // Someone who speaks to a server elsewhere has no data folder here, and needs none.
    let elsewhere = *config.values.origin("url") != Origin::Default && !data.exists();
    let mut findings = vec![settings(config)];
    if !elsewhere {
        findings.push(folder(data));
        findings.extend(disk(data));
        findings.extend(secrets(data));
    }
    findings.push(open_files(getrlimit(Resource::Nofile).current));
    findings.extend(cgroups(mutirao_worker::notices()));
    findings
}

fn settings(config: &Config) -> Finding {
    match config.strange_env.as_slice() {
        [] => Finding::ok("settings", "every setting is known and good"),
        names => Finding::warn(
            "settings",
            format!("{} is no setting", names.join(", ")),
            "is it misspelt? `mutirao config list` shows them all",
        ),
    }
}

fn folder(data: &Path) -> Finding {
    let shown = data.display();
    let meta = match std::fs::metadata(data) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::fail(
                "data folder",
                format!("{shown} is not there"),
                "`mutirao up` makes it; or set MUTIRAO_DATA",
            );
        }
        Err(error) => {
            return Finding::fail("data folder", format!("{shown}: {error}"), "set MUTIRAO_DATA to one you may use");
        }
    };
    if !meta.is_dir() {
        return Finding::fail("data folder", format!("{shown} is not a folder"), "set MUTIRAO_DATA to a folder");
    }
    if rustix::fs::access(data, rustix::fs::Access::WRITE_OK).is_err() {
        return Finding::fail(
            "data folder",
            format!("{shown} cannot be written to"),
            "become its owner or choose another",
        );
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Finding::warn(
            "data folder",
            format!("{shown} is open to others ({mode:o})"),
            format!("chmod 700 {shown}"),
        );
    }
    Finding::ok("data folder", shown.to_string())
}

/// Told only when something is wrong. Tokens and keys are made 0600; somebody may have changed it since.
fn secrets(data: &Path) -> Option<Finding> {
    let token = data.join(TOKEN_FILE);
    let mode = std::fs::metadata(&token).ok()?.permissions().mode() & 0o777;
    let shown = token.display();
    (mode & 0o077 != 0).then(|| {
        let remedy = format!("chmod 600 {shown}, and make a new token if others may have read it");
        Finding::fail("admin token", format!("{shown} is open to others ({mode:o})"), remedy)
    })
}

fn disk(data: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(data).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} free", size(free));
    let remedy = "free some space, or keep finished jobs for a shorter time (jobs.keep)";
    Some(match free {
        free if free < FREE_BYTES_GONE => Finding::fail("disk", found, remedy),
        free if free < FREE_BYTES_LOW => Finding::warn("disk", found, remedy),
        _ => Finding::ok("disk", found),
    })
}

fn open_files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < OPEN_FILES_LOW => Finding::warn(
            "open files",
            format!("at most {limit}"),
            format!("raise it with `ulimit -n {}`", OPEN_FILES_LOW * 4),
        ),
        Some(limit) => Finding::ok("open files", format!("at most {limit}")),
        None => Finding::ok("open files", "no limit"),
    }
}

fn cgroups(notices: Vec<String>) -> Vec<Finding> {
    if notices.is_empty() {
        return vec![Finding::ok("cgroups", "tasks are held to the memory they ask for")];
    }
    let remedy = "run as root or with a delegated cgroup if tasks must be held to their limits";
    notices.into_iter().map(|notice| Finding::warn("cgroups", notice, remedy)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Mark;
    use super::*;

    #[test]
    fn a_folder_is_looked_at_from_every_side() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o700);
        assert_eq!(folder(dir.path()).mark, Mark::Ok);
        set(0o755);
        assert_eq!(folder(dir.path()).mark, Mark::Warn);
        assert_eq!(folder(&dir.path().join("missing")).mark, Mark::Fail);
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(folder(&file).mark, Mark::Fail);
    }

    #[test]
    fn a_token_that_others_can_read_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(secrets(dir.path()), None);
        let token = dir.path().join(TOKEN_FILE);
        std::fs::write(&token, "t").unwrap();
        let set = |mode| std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert_eq!(secrets(dir.path()), None);
        set(0o644);
        assert!(secrets(dir.path()).is_some_and(|found| found.mark == Mark::Fail));
    }

    #[test]
    fn a_low_limit_is_told_with_its_remedy() {
        let low = open_files(Some(256));
        assert!(low.mark == Mark::Warn && low.remedy.is_some_and(|remedy| remedy.contains("ulimit")));
        assert_eq!(open_files(None).mark, Mark::Ok);
    }
}
