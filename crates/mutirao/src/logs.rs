//! Logs of the long-running roles: to stderr, human on a terminal and JSON otherwise. Commands do not log; they answer.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::config::{LogFormat, Settings};

/// Begins logging. Once per process; a second call changes nothing.
pub fn start(settings: &Settings) {
    // What RabbitMQ's client library has to say comes back as errors, and is said there; whoever wants both may ask.
    let filter = EnvFilter::new(format!("lapin=off,{}", settings.log_level.0));
    let terminal = std::io::stderr().is_terminal();
    let human = match settings.log_format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let coloured = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_span_events(FmtSpan::NONE);
    let started = if human {
        log.with_ansi(coloured).with_target(false).try_init()
    } else {
        log.json().flatten_event(true).with_current_span(false).try_init()
    };
    // Only a test that starts two roles in one process gets here twice.
    drop(started);
}
