//! What `up` says once it is up: where the API is, where the token is, and what to type next. Only what works.

use std::path::{Path, PathBuf};

use mutirao_core::quantity::Cpus;
use mutirao_core::task::Needs;

use crate::cli::{Globals, Out, Shape, quoted, size};
use crate::config::{Config, Origin};
use crate::manager::Manager;

pub fn up(globals: &Globals, config: &Config, manager: &Manager, workers: u32, capacity: Needs) {
    let out = Out::new(globals.shape());
    let said = match out.shape {
        Shape::Json => out.line(serde_json::json!({
            "url": manager.url, "token_file": manager.token_file, "data": config.settings.data.0, "workers": workers,
            "mqtt": manager.mqtt_address(),
        })),
        Shape::People => {
            let data = (*config.values.origin("data") != Origin::Default).then(|| absolute(&config.settings.data.0));
            out.line(text(
                manager,
                workers,
                capacity,
                &Next { program: program(), data },
                &config.settings.drain.to_string(),
            ))
        }
    };
    if said.is_err() {
        // Nobody listens to our stdout, which is no reason not to work.
        tracing::info!(url = manager.url, "up");
    }
}

fn text(manager: &Manager, workers: u32, capacity: Needs, next: &Next, drain: &str) -> String {
    let crew = match workers {
        0 => "none; `worker invite` lets one in".into(),
        n => {
            let cpus = if capacity.cpus == Cpus::ONE { "1 cpu".into() } else { format!("{} cpus", capacity.cpus) };
            format!("{n}, each with {cpus} and {} of memory", size(capacity.memory.0))
        }
    };
    let hello = if workers > 0 { "submit --wait -- echo hello" } else { "worker invite" };
    let mqtt = manager.mqtt_address().map(|at| format!("\n  MQTT     {at}")).unwrap_or_default();
    format!(
        "Mutirão {} is up.\n  API      {}\n  token    {}\n  workers  {crew}{mqtt}\n\nIn another terminal:\n  {}\n  {}\n  {}\n\n\
         Ctrl-C stops it; running tasks get {drain} to finish.",
        env!("MUTIRAO_BUILD"),
        manager.url,
        manager.token_file.display(),
        next.line(hello),
        next.line("job list"),
        next.line("--help"),
    )
}

/// How a person calls this program from where they are.
struct Next {
    program: String,
    /// Absent when the program finds its data folder without being told.
    data: Option<PathBuf>,
}

impl Next {
    fn line(&self, rest: &str) -> String {
        match &self.data {
            Some(data) => format!("MUTIRAO_DATA={} {} {rest}", quoted(&data.display().to_string()), self.program),
            None => format!("{} {rest}", self.program),
        }
    }
}

/// `mutirao` when that is what the shell would find, else the path of this very program.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "mutirao".into() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("mutirao")).find(|file| file.is_file());
    if found.is_some_and(|found| found.canonicalize().is_ok_and(|found| found == own)) {
        return "mutirao".into();
    }
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| own.strip_prefix(here).ok().map(|below| format!("./{}", below.display())));
    quoted(&relative.unwrap_or_else(|| own.display().to_string()))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_survives_a_shell() {
        let next = |data: Option<&str>| Next { program: "./mutirao".into(), data: data.map(Into::into) };
        assert_eq!(next(None).line("job list"), "./mutirao job list");
        assert_eq!(next(Some("/a b/it's")).line("x"), r"MUTIRAO_DATA='/a b/it'\''s' ./mutirao x");
    }
}
