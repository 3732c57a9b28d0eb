//! `mutirao monitor …`

mod changes;
mod channel;

use clap::{Args, Subcommand};
use mutirao_client::Client;
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, SystemClock};
use mutirao_monitors::alerts::{Acknowledged, Silence};
use mutirao_monitors::service::alerts::{AlertView, SilenceSpec};
use mutirao_monitors::service::{History, MonitorView, Tried};

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;
use changes::{Changes, Subject};

#[derive(Debug, Args)]
pub struct MonitorArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check something from now on: `mutirao monitor add shop --http https://shop.example.org`
    Add {
        name: String,
        #[command(flatten)]
        subject: Box<Subject>,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Show the monitors and how they stand
    List,
    /// Show one monitor
    Show { name: String },
    /// Change a monitor; it counts within a second
    Edit {
        name: String,
        #[command(flatten)]
        subject: Box<Subject>,
        #[command(flatten)]
        changes: Box<Changes>,
    },
    /// Check it no more, for now
    Pause { name: String },
    /// Check it again
    Resume { name: String },
    /// Remove a monitor
    Rm { name: String },
    /// Give one that calls a new address; the former is good no more
    Token { name: String },
    /// Make one check now, and show how it ends; nothing of it is written
    Run { name: String },
    /// Show outcomes, incidents and how much of the time it was up
    History {
        name: String,
        /// How many outcomes, or minutes, hours or days
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// What outcomes came to, instead of each of them
        #[arg(long, value_enum)]
        by: Option<By>,
    },
    /// Show who was told what, and whether it was heard
    Alerts {
        name: String,
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Say that you take care of what is down: nobody is reminded of it any more
    Ack { name: String },
    /// Tell nobody anything for a while; what is still down at the end is told then
    Silence {
        name: String,
        /// How long
        #[arg(long = "for", value_name = "SPAN")]
        length: Span,
        /// For others to read
        #[arg(long)]
        why: Option<String>,
    },
    /// End a silence
    Unsilence { name: String },
    /// Where alerts go
    Channel(channel::ChannelArgs),
}

/// How far outcomes are added up.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    Minute,
    Hour,
    Day,
}

/// Ends with 1 when a check that was asked for is bad.
pub async fn run(globals: &Globals, args: MonitorArgs) -> Result<u8, Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    let said = |view: &MonitorView, what: &str| format!("monitor {} {what}", view.definition.name);
    match args.verb {
        Verb::Add { name, subject, changes } => {
            let spec = changes.made_to(subject.new_monitor(name)?)?;
            let view: MonitorView = client.create_monitor(&spec).await?;
            out.answer(&view, |view| match call_line(&client, view) {
                Some(line) => format!("{}, every {}\n{line}", said(view, "is to call"), view.definition.every),
                None => format!("{}, every {}", said(view, "is checked from now on"), view.definition.every),
            })?;
        }
        Verb::List => out.answer(&all(&client).await?, |views| show::monitors(views, SystemClock.now()))?,
        Verb::Show { name } => {
            let view: MonitorView = client.monitor(&name).await?;
            out.answer(&view, |view| show::monitor(view, SystemClock.now()))?;
        }
        Verb::Edit { name, subject, changes } => {
            let before: MonitorView = client.monitor(&name).await?;
            let spec = changes.made_to(subject.changed(before.definition.clone())?)?;
            if spec == before.definition {
                return Err(Failure::usage("nothing is to be changed; see `mutirao monitor edit --help`"));
            }
            let view: MonitorView = client.put_monitor(&name, &spec, Some(before.revision)).await?;
            out.answer(&view, |view| {
                [Some(said(view, "is changed")), call_line(&client, view)]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("\n")
            })?;
        }
        Verb::Token { name } => {
            let view: MonitorView = client.renew_monitor_token(&name).await?;
            out.answer(&view, |view| call_line(&client, view).unwrap_or_default())?;
        }
        Verb::Pause { name } => {
            let view: MonitorView = client.pause_monitor(&name).await?;
            out.answer(&view, |view| said(view, "is paused"))?;
        }
        Verb::Resume { name } => {
            let view: MonitorView = client.resume_monitor(&name).await?;
            out.answer(&view, |view| said(view, "goes on"))?;
        }
        Verb::Rm { name } => {
            client.remove_monitor(&name).await?;
            out.answer(&serde_json::json!({ "removed": name }), |_| format!("monitor {name} is gone"))?;
        }
        Verb::Run { name } => {
            let tried: Tried = client.run_monitor(&name).await?;
            out.answer(&tried, show::tried)?;
            return Ok(u8::from(tried.verdict == mutirao_monitors::health::Verdict::Bad));
        }
        Verb::History { name, limit, by } => {
            let by = by.map(|by| match by {
                By::Minute => "minute",
                By::Hour => "hour",
                By::Day => "day",
            });
            let history: History = client.monitor_history(&name, limit, by).await?;
            out.answer(&history, |history| show::history(history, SystemClock.now()))?;
        }
        Verb::Alerts { name, limit } => {
            let alerts: Vec<AlertView> = client.monitor_alerts(&name, limit).await?;
            out.answer(&alerts, |alerts| show::alerts(alerts, SystemClock.now()))?;
        }
        Verb::Ack { name } => {
            let known: Acknowledged = client.acknowledge_monitor(&name).await?;
            out.answer(&known, |_| format!("nobody is reminded any more that {name} is down"))?;
        }
        Verb::Silence { name, length, why } => {
            let silence: Silence = client.silence_monitor(&name, &SilenceSpec { length, why }).await?;
            out.answer(&silence, |silence| format!("nobody is told anything about {name} until {}", silence.until))?;
        }
        Verb::Unsilence { name } => {
            client.unsilence_monitor(&name).await?;
            out.answer(&serde_json::json!({ "unsilenced": name }), |_| format!("{name} is heard of again"))?;
        }
        Verb::Channel(args) => channel::run(&client, &out, args).await?,
    }
    Ok(0)
}

/// Where a monitor is to call, when that may be shown: once.
pub fn call_line(client: &Client, view: &MonitorView) -> Option<String> {
    let token = view.push_token.as_deref()?;
    Some(format!(
        "POST or GET {}/v1/push/{token}\nthis is shown once: keep it where the caller finds it",
        client.url().trim_end_matches('/')
    ))
}

/// Page after page.
async fn all(client: &Client) -> Result<Vec<MonitorView>, Failure> {
    let mut all: Vec<MonitorView> = Vec::new();
    loop {
        let after = all.last().map(|view| view.definition.name.clone());
        let page: Vec<MonitorView> = client.monitors(after.as_deref()).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}
