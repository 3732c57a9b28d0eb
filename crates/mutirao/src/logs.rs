//! Logs of the long-running roles: to stderr, human on a terminal and JSON otherwise. Commands do not log; they answer.

use std::io::IsTerminal;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::config::{LogFormat, Settings};

/// Begins logging. Once per process; a second call changes nothing.
pub fn start(settings: &Settings) {
    // What the client libraries of RabbitMQ and PostgreSQL have to say comes back as errors, and is said there; whoever wants
    // both may ask.
    let filter = format!("lapin=off,deadpool=off,{}", settings.log_level.0).parse::<Targets>();
    let filter = filter.expect("the setting was read as one already");
    let terminal = std::io::stderr().is_terminal();
    let human = match settings.log_format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let coloured = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = fmt::layer().with_writer(std::io::stderr);
    let started = if human {
        registry().with(filter).with(log.with_ansi(coloured).with_target(false)).try_init()
    } else {
        registry().with(filter).with(log.json().flatten_event(true).with_current_span(false)).try_init()
    };
    // Only a test that starts two roles in one process gets here twice.
    drop(started);
}
