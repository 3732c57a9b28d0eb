//! `mutirao monitor channel …`: where alerts go.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mutirao_client::Client;
use mutirao_core::{Clock, SystemClock};
use mutirao_monitors::alerts::channel::{ChannelSpec, Program, Secret, Slack, Way, Webhook};
use mutirao_monitors::service::alerts::ChannelView;

use crate::cli::out::Out;
use crate::cli::show;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct ChannelArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a channel, or change it: `mutirao monitor channel add chat --slack https://hooks.slack.com/services/…`
    Add {
        name: String,
        #[command(flatten)]
        way: Box<WayArgs>,
    },
    /// Show the channels; what is secret in them is not shown
    List,
    /// Show one channel
    Show { name: String },
    /// Remove a channel; what waits for it is given up
    Rm {
        name: String,
        /// Also when monitors tell it: they tell nobody then
        #[arg(long)]
        force: bool,
    },
    /// Send something harmless through it, now
    Test { name: String },
}

/// One of these. Headers and templates are given by `mutirao apply`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Ways {
    /// Post there what there is to say, as JSON
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Post there as Slack takes it
    #[arg(long, value_name = "URL")]
    slack: Option<String>,
    /// Run a program; its own options come last, after --
    #[arg(long, value_name = "CMD", num_args = 1..)]
    exec: Option<Vec<String>>,
}

#[derive(Debug, Args)]
struct WayArgs {
    #[command(flatten)]
    ways: Ways,
    /// A file with what a webhook is signed with; a secret on the line would be seen by others
    #[arg(long, value_name = "FILE", requires = "webhook")]
    secret_file: Option<PathBuf>,
    /// What --exec gives its program besides, options among it
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

impl WayArgs {
    fn way(self) -> Result<Way, Failure> {
        let Self { ways: Ways { webhook, slack, exec }, secret_file, args } = self;
        if exec.is_none() && !args.is_empty() {
            return Err(Failure::usage("what comes after -- is for a program: give --exec"));
        }
        let read = |file: PathBuf| {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
            Ok::<_, Failure>(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
        };
        let secret = secret_file.map(read).transpose()?;
        let hook =
            |url| Way::Webhook(Webhook { url: Secret(url), headers: Default::default(), template: None, secret });
        let way = webhook
            .map(hook)
            .or_else(|| slack.map(|url| Way::Slack(Slack { url: Secret(url) })))
            .or_else(|| exec.map(|words| Way::Exec(Program { command: [words, args].concat() })));
        way.ok_or_else(|| Failure::usage("where does it lead? give --webhook, --slack or --exec"))
    }
}

pub async fn run(client: &Client, out: &Out, args: ChannelArgs) -> Result<(), Failure> {
    match args.verb {
        Verb::Add { name, way } => {
            let spec = ChannelSpec { name, way: way.way()? };
            let view: ChannelView = client.put_channel(&spec.name, &spec).await?;
            out.answer(&view, |view| format!("channel {} leads there from now on", view.definition.name))
        }
        Verb::List => {
            let views: Vec<ChannelView> = client.channels().await?;
            out.answer(&views, |views| show::channels(views, SystemClock.now()))
        }
        Verb::Show { name } => {
            let view: ChannelView = client.channel(&name).await?;
            out.answer(&view, |view| show::channels(std::slice::from_ref(view), SystemClock.now()))
        }
        Verb::Rm { name, force } => {
            client.remove_channel(&name, force).await?;
            out.answer(&serde_json::json!({ "removed": name }), |_| format!("channel {name} is gone"))
        }
        Verb::Test { name } => {
            client.test_channel(&name).await?;
            out.answer(&serde_json::json!({ "taken": name }), |_| format!("channel {name} took it"))
        }
    }
}
