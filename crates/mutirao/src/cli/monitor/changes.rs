//! The flags that say what a monitor checks, and how.

use clap::Args;
use mutirao_core::quantity::Span;
use mutirao_elastic::packing::Layer;
use mutirao_monitors::agenda::Missed;
use mutirao_monitors::alerts::rule::Rule;
use mutirao_monitors::health::Thresholds;
use mutirao_monitors::placement::Place;
use mutirao_monitors::push::Push;
use mutirao_monitors::{MonitorSpec, spec};
use mutirao_probes::Check;
use mutirao_probes::check::{Dns, Exec, Http, Icmp, RecordKind, Tcp, Tls};

use crate::failure::Failure;

/// What is checked.
#[derive(Debug, Args)]
pub struct Subject {
    #[command(flatten)]
    one: Subjects,
    /// What --exec gives its program besides, options among it
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// One of these.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Subjects {
    /// Ask for this page, over HTTP or HTTPS
    #[arg(long, value_name = "URL", help_heading = "What is checked")]
    http: Option<String>,
    /// Open a connection
    #[arg(long, value_name = "HOST:PORT", help_heading = "What is checked")]
    tcp: Option<String>,
    /// Look at the certificate
    #[arg(long, value_name = "HOST:PORT", help_heading = "What is checked")]
    tls: Option<String>,
    /// Look a name up
    #[arg(long, value_name = "NAME", help_heading = "What is checked")]
    dns: Option<String>,
    /// Send an echo
    #[arg(long, value_name = "HOST", help_heading = "What is checked")]
    icmp: Option<String>,
    /// Run a program by the convention of Nagios plugins; its own options come last, after --
    #[arg(long, value_name = "CMD", num_args = 1.., help_heading = "What is checked")]
    exec: Option<Vec<String>>,
    /// Ask nobody: give it an address that it must call in time
    #[arg(long, help_heading = "What is checked")]
    push: bool,
}

impl Subject {
    fn subject(self) -> Result<Option<spec::Subject>, Failure> {
        let Self { one: Subjects { http, tcp, tls, dns, icmp, exec, push }, args } = self;
        if exec.is_none() && !args.is_empty() {
            return Err(Failure::usage("what comes after -- is for a program: give --exec"));
        }
        if push {
            return Ok(Some(spec::Subject::Push(Push::default())));
        }
        let check = http
            .map(|url| Check::Http(Http::new(&url)))
            .or_else(|| tcp.map(|address| Check::Tcp(Tcp { address })))
            .or_else(|| tls.map(|address| Check::Tls(Tls { address, name: None })))
            .or_else(|| dns.map(|name| Check::Dns(Dns { name, record: RecordKind::default(), server: None })))
            .or_else(|| icmp.map(|host| Check::Icmp(Icmp { host })))
            .or_else(|| {
                exec.map(|words| Check::Exec(Exec { command: [words, args].concat(), env: Default::default() }))
            });
        Ok(check.map(spec::Subject::Check))
    }

    pub fn new_monitor(self, name: String) -> Result<MonitorSpec, Failure> {
        let subject = self.subject()?.ok_or_else(|| {
            Failure::usage("what is to be checked? give --http, --tcp, --tls, --dns, --icmp, --exec or --push")
        })?;
        Ok(MonitorSpec {
            name,
            every: Span::secs(60),
            timeout: Span::secs(5),
            subject,
            when: vec![],
            retries: 0,
            thresholds: Thresholds::default(),
            missed: Missed::default(),
            maintenance: vec![],
            alerts: vec![],
            labels: Default::default(),
            on: None,
            paused: false,
        })
    }

    /// What is not said stays as it is.
    pub fn changed(self, mut spec: MonitorSpec) -> Result<MonitorSpec, Failure> {
        use spec::Subject::{Check as Asked, Push as Called};
        match (self.subject()?, &mut spec.subject) {
            (None, _) | (Some(Called(_)), Called(_)) => {}
            // The rest of a request stays when only its address changes.
            (Some(Asked(Check::Http(new))), Asked(Check::Http(there))) => there.url = new.url,
            (Some(new), there) => *there = new,
        }
        Ok(spec)
    }
}

#[derive(Debug, Args)]
pub struct Changes {
    /// How often [default: 1m]
    #[arg(long, value_name = "SPAN")]
    every: Option<Span>,
    /// How long one check may take [default: 5s]
    #[arg(long, value_name = "SPAN")]
    timeout: Option<Span>,
    /// How much later than its interval a call may come, of one that calls [default: half of it]
    #[arg(long, value_name = "SPAN")]
    grace: Option<Span>,
    /// What must hold of the answer, in CEL; may be repeated: 'status == 200', 'cert.days_left > 14'
    #[arg(long, value_name = "CEL")]
    when: Vec<String>,
    /// How often a bad answer is asked for again before it counts
    #[arg(long)]
    retries: Option<u32>,
    /// Bad outcomes in a row until it is down [default: 3]
    #[arg(long)]
    failures: Option<u32>,
    /// Good outcomes in a row until it is up again [default: 1]
    #[arg(long)]
    successes: Option<u32>,
    /// Who is told when it goes down and up, flaps, or is not checked any more: a channel; may be repeated
    #[arg(long, value_name = "CHANNEL")]
    alert: Vec<String>,
    /// How often those are told again while it is down [default: never]
    #[arg(long, value_name = "SPAN", requires = "alert")]
    remind: Option<Span>,
    /// For finding it again; may be repeated
    #[arg(long, value_name = "K=V")]
    label: Vec<String>,
    /// Have it checked only by checkers of this layer: edge, fog or cloud
    #[arg(long, value_name = "LAYER", value_parser = layer)]
    on_layer: Option<Layer>,
    /// Have it checked only by checkers that have this label; may be repeated
    #[arg(long, value_name = "K=V")]
    on_label: Vec<String>,
    /// Have it checked by any checker again
    #[arg(long, conflicts_with_all = ["on_layer", "on_label"])]
    anywhere: bool,
}

fn layer(text: &str) -> Result<Layer, String> {
    serde_json::from_value(text.into()).map_err(|_| "choose from edge, fog and cloud".into())
}

fn pair(flag: &str, text: &str) -> Result<(String, String), Failure> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| Failure::usage(format!("{flag} {text}: write it like team=web")))?;
    Ok((key.into(), value.into()))
}

impl Changes {
    pub fn made_to(self, mut spec: MonitorSpec) -> Result<MonitorSpec, Failure> {
        spec.every = self.every.unwrap_or(spec.every);
        spec.timeout = self.timeout.unwrap_or(spec.timeout);
        if !self.when.is_empty() {
            spec.when = self.when;
        }
        spec.retries = self.retries.unwrap_or(spec.retries);
        spec.thresholds.failures = self.failures.unwrap_or(spec.thresholds.failures);
        spec.thresholds.successes = self.successes.unwrap_or(spec.thresholds.successes);
        if !self.alert.is_empty() {
            let rule = |to| Rule { remind: self.remind, ..Rule::new(to) };
            spec.alerts = self.alert.into_iter().map(rule).collect();
        }
        for label in self.label {
            spec.labels.extend([pair("--label", &label)?]);
        }
        match (self.grace, &mut spec.subject) {
            (None, _) => {}
            (Some(grace), spec::Subject::Push(push)) => push.grace = Some(grace),
            (Some(_), spec::Subject::Check(_)) => {
                return Err(Failure::usage("--grace is for one that calls: give --push, or --timeout for a check"));
            }
        }
        if self.anywhere {
            spec.on = None;
        }
        if self.on_layer.is_some() || !self.on_label.is_empty() {
            let labels = self.on_label.iter().map(|label| pair("--on-label", label)).collect::<Result<_, _>>()?;
            spec.on = Some(Place { layer: self.on_layer, labels });
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        name: String,
        #[command(flatten)]
        subject: Subject,
        #[command(flatten)]
        changes: Changes,
    }

    fn read(words: &str) -> Result<MonitorSpec, String> {
        let line = Line::try_parse_from(["add", "m"].into_iter().chain(words.split(' ')));
        let Line { name, subject, changes } = line.map_err(|error| error.to_string())?;
        subject.new_monitor(name).and_then(|spec| changes.made_to(spec)).map_err(|failure| format!("{failure:?}"))
    }

    fn command(spec: &MonitorSpec) -> String {
        match &spec.subject {
            spec::Subject::Check(Check::Exec(exec)) => exec.command.join(" "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_program_eats_no_option_and_has_its_own_after_two_dashes() {
        let spec = read("--exec check_disk /var --every 10s --retries 2").unwrap();
        assert_eq!((command(&spec).as_str(), spec.every, spec.retries), ("check_disk /var", Span::secs(10), 2));
        let spec = read("--exec check_disk --every 10s -- -w 5 --every 7").unwrap();
        assert_eq!((command(&spec).as_str(), spec.every), ("check_disk -w 5 --every 7", Span::secs(10)));
        let refused = read("--exec check_disk -w 5").unwrap_err();
        assert!(refused.contains("unexpected argument '-w'") && refused.contains("-- -w"), "{refused}");
        let refused = read("--tcp x:1 -- -w 5").unwrap_err();
        assert!(refused.contains("--exec"), "{refused}");
    }
}
