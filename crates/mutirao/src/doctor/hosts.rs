//! The machines of `elastic.hosts`: whether each can be reached and used as a node.

use std::path::Path;

use futures_util::future::join_all;
use mutirao_core::SystemClock;
use mutirao_resource::ssh::inspect;

use super::Finding;
use crate::config::Settings;
use crate::failure::Failure;
use crate::role::elastic;

const WHAT: &str = "hosts";

pub async fn look(settings: &Settings) -> Vec<Finding> {
    let hosts = match elastic::hosts(settings) {
        Ok(hosts) => hosts,
        Err(failure) => {
            let said = match failure {
                Failure::Said { line, .. } => line,
                other => format!("{other:?}"),
            };
            return vec![Finding::fail(WHAT, said, "docs/own-machines.md shows such a file")];
        }
    };
    if hosts.is_empty() {
        return Vec::new();
    }
    let (Ok(program), Some(dir)) = (std::env::current_exe(), folder()) else { return Vec::new() };
    let found = join_all(hosts.iter().map(|host| inspect(host, &program, dir.as_ref(), SystemClock::shared()))).await;
    let _ = std::fs::remove_dir_all(&dir);
    let finding = |(host, found): (&mutirao_resource::ssh::HostSpec, Result<String, String>)| match found {
        Ok(has) => Finding::ok(WHAT, format!("{} has {has}", host.name)),
        Err(why) => {
            let remedy = "mend it, or take it out of the file; the others are used meanwhile";
            Finding::fail(WHAT, format!("{}: {why}", host.name), remedy)
        }
    };
    hosts.iter().zip(found).map(finding).collect()
}

/// For what is kept of the connections while they last.
fn folder() -> Option<Box<Path>> {
    use std::os::unix::fs::DirBuilderExt;
    let dir = std::env::temp_dir().join(format!("mutirao-doctor-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&dir).ok()?;
    Some(dir.into())
}
