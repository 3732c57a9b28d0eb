//! Which commit this was built from, so that two builds of one version can be told apart. Without git, or outside of a
//! repository, the version alone has to do.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    (out.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let commit = git(&["rev-parse", "--short=9", "HEAD"]);
    if let Some(log) = commit.as_ref().and_then(|_| git(&["rev-parse", "--git-path", "logs/HEAD"])) {
        println!("cargo::rerun-if-changed={log}");
    }
    let build = commit.map_or(version.to_owned(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=MUTIRAO_BUILD={build}");
}
