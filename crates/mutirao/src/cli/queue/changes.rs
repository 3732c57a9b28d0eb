//! From flags to a definition: what is said is changed, the rest stays.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use mutirao_core::limits::RETRIES_MAX;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::Retry;
use mutirao_elastic::Preset;
use mutirao_elastic::packing::Layer;
use mutirao_queues::{By, FairShare, Policy, QueueSpec};

use crate::cli::flags;
use crate::failure::Failure;

#[derive(Debug, Default, Args)]
pub struct Changes {
    /// Whose task goes next
    #[arg(long)]
    policy: Option<PolicyArg>,
    /// Who shares in a fair share: owner, or label:NAME
    #[arg(long, value_name = "WHO", value_parser = sharers)]
    share_by: Option<By>,
    /// After this long, what was used counts half in a fair share
    #[arg(long, value_name = "TIME")]
    half_life: Option<Span>,
    /// How many shares somebody gets in a fair share; everybody else gets one
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = share)]
    share: Vec<(String, u32)>,
    /// The most tasks that workers have at once, or none
    #[arg(long, value_name = "N", value_parser = limit::<u32>)]
    running_max: Option<Limit<u32>>,
    /// The most tasks that start in a second, or none
    #[arg(long, value_name = "RATE", value_parser = limit::<f64>)]
    starts_per_second: Option<Limit<f64>>,
    /// The most tasks that may wait, or none
    #[arg(long, value_name = "N", value_parser = limit::<u64>)]
    waiting_max: Option<Limit<u64>>,
    /// Retries of jobs that do not say
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    retries: Option<u32>,
    /// How long one try may run of jobs that do not say, or none
    #[arg(long, value_name = "TIME", value_parser = limit::<Span>)]
    timeout: Option<Limit<Span>>,
    /// The cpus each of its workers gets
    #[arg(long, value_name = "CPUS")]
    worker_cpus: Option<Cpus>,
    /// The memory each of its workers gets
    #[arg(long, value_name = "SIZE")]
    worker_mem: Option<Bytes>,
    /// A label that the nodes of its workers must have, or none for no labels at all; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    worker_label: Vec<Limit<(String, String)>>,
    /// The layer that the nodes of its workers must be in: edge, fog or cloud, or none for any
    #[arg(long, value_name = "LAYER", value_parser = layer)]
    worker_layer: Option<Limit<Layer>>,
    /// Workers come and go with the load, by these settings, or none: see docs/elastic.md
    #[arg(long, value_name = "PRESET", value_parser = limit::<Preset>)]
    elastic_preset: Option<Limit<Preset>>,
    /// The fewest workers there are of an elastic queue
    #[arg(long, value_name = "N")]
    workers_min: Option<u32>,
    /// The most workers there are of an elastic queue
    #[arg(long, value_name = "N")]
    workers_max: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArg {
    /// First come, first served
    Fifo,
    /// The highest --priority first
    Priority,
    /// Whoever used least lately
    FairShare,
}

/// A limit that is set, or taken away.
#[derive(Clone, Copy, Debug)]
enum Limit<T> {
    None,
    At(T),
}

impl<T> Limit<T> {
    fn into_option(self) -> Option<T> {
        match self {
            Limit::None => None,
            Limit::At(value) => Some(value),
        }
    }
}

fn limit<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Limit<T>, String> {
    match text {
        "none" => Ok(Limit::None),
        _ => text.parse().map(Limit::At).map_err(|error: T::Err| format!("{error}; or write none for no limit")),
    }
}

fn label(text: &str) -> Result<Limit<(String, String)>, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Limit::At((name.into(), value.into()))),
        None if text == "none" => Ok(Limit::None),
        _ => Err("write it like disk=ssd, or none for no labels at all".into()),
    }
}

fn layer(text: &str) -> Result<Limit<Layer>, String> {
    match text {
        "edge" => Ok(Limit::At(Layer::Edge)),
        "fog" => Ok(Limit::At(Layer::Fog)),
        "cloud" => Ok(Limit::At(Layer::Cloud)),
        "none" => Ok(Limit::None),
        _ => Err("write edge, fog or cloud; or none for any".into()),
    }
}

fn sharers(text: &str) -> Result<By, String> {
    match text.split_once(':') {
        None if text == "owner" => Ok(By::Owner),
        Some(("label", label)) if !label.is_empty() => Ok(By::Label(label.into())),
        _ => Err("write owner, or label:NAME".into()),
    }
}

fn share(text: &str) -> Result<(String, u32), String> {
    let bad = || "write it like physics=3".to_owned();
    let (who, weight) = text.rsplit_once('=').ok_or_else(bad)?;
    Ok((who.into(), weight.parse().map_err(|_| bad())?))
}

impl Changes {
    /// The definition with these changes, checked.
    pub fn made_to(self, mut spec: QueueSpec) -> Result<QueueSpec, Failure> {
        match self.policy {
            Some(PolicyArg::Fifo) => spec.policy = Policy::Fifo,
            Some(PolicyArg::Priority) => spec.policy = Policy::Priority,
            Some(PolicyArg::FairShare) if !matches!(spec.policy, Policy::FairShare(_)) => {
                spec.policy = Policy::FairShare(FairShare::default());
            }
            _ => {}
        }
        let shares: BTreeMap<String, u32> = self.share.into_iter().collect();
        if self.share_by.is_some() || self.half_life.is_some() || !shares.is_empty() {
            let Policy::FairShare(fair) = &mut spec.policy else {
                return Err(Failure::usage(
                    "--share-by, --half-life and --share are for a fair share; add --policy fair-share",
                ));
            };
            fair.by = self.share_by.unwrap_or_else(|| fair.by.clone());
            fair.half_life = self.half_life.unwrap_or(fair.half_life);
            fair.shares.extend(shares);
        }
        if let Some(limit) = self.running_max {
            spec.limits.running = limit.into_option();
        }
        if let Some(limit) = self.starts_per_second {
            spec.limits.starts_per_second = limit.into_option();
        }
        if let Some(limit) = self.waiting_max {
            spec.limits.waiting = limit.into_option();
        }
        if let Some(retries) = self.retries {
            spec.defaults.retry = Some(Retry { retries, ..spec.defaults.retry.unwrap_or_default() });
        }
        if let Some(limit) = self.timeout {
            spec.defaults.timeout = limit.into_option();
        }
        spec.workers.cpus = self.worker_cpus.or(spec.workers.cpus);
        spec.workers.memory = self.worker_mem.or(spec.workers.memory);
        for label in self.worker_label {
            match label {
                Limit::None => spec.workers.labels.clear(),
                Limit::At((name, value)) => drop(spec.workers.labels.insert(name, value)),
            }
        }
        if let Some(layer) = self.worker_layer {
            spec.workers.layer = layer.into_option();
        }
        if let Some(preset) = self.elastic_preset {
            spec.elastic = preset.into_option().map(Preset::elastic);
        }
        if self.workers_min.is_some() || self.workers_max.is_some() {
            let Some(elastic) = &mut spec.elastic else {
                return Err(Failure::usage(
                    "--workers-min and --workers-max are for an elastic queue; add --elastic-preset arrebol",
                ));
            };
            elastic.min = self.workers_min.unwrap_or(elastic.min);
            elastic.max = self.workers_max.unwrap_or(elastic.max);
        }
        spec.check().map_err(|problem| Failure::usage(flags::named(problem).line()))?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        changes: Changes,
    }

    fn made(args: &[&str], before: QueueSpec) -> Result<QueueSpec, String> {
        let line = Line::try_parse_from(["x"].iter().chain(args)).map_err(|error| error.to_string())?;
        line.changes.made_to(before).map_err(|failure| format!("{failure:?}"))
    }

    fn plain() -> QueueSpec {
        QueueSpec::new("q".parse().unwrap())
    }

    #[test]
    fn what_is_said_is_changed_and_the_rest_stays() {
        let first =
            ["--policy", "fair-share", "--share-by", "label:team", "--share", "physics=3", "--running-max", "8"];
        let spec = made(&first, plain()).unwrap();
        let then = ["--half-life", "2h", "--starts-per-second", "0.5", "--timeout", "5m", "--retries", "2"];
        let spec = made(&then, spec).unwrap();
        let Policy::FairShare(fair) = &spec.policy else { panic!("{spec:?}") };
        assert_eq!(
            (&fair.by, fair.half_life, fair.shares["physics"]),
            (&By::Label("team".into()), Span::secs(7_200), 3)
        );
        assert_eq!((spec.limits.running, spec.limits.starts_per_second), (Some(8), Some(0.5)));
        assert_eq!((spec.defaults.retry.unwrap().retries, spec.defaults.timeout), (2, Some(Span::secs(300))));
        let spec = made(&["--running-max", "none", "--timeout", "none", "--policy", "priority"], spec).unwrap();
        assert_eq!((spec.limits.running, spec.defaults.timeout, spec.policy), (None, None, Policy::Priority));
    }

    #[test]
    fn an_elastic_queue_is_made_changed_and_unmade() {
        let spec = made(&["--elastic-preset", "arrebol", "--workers-max", "5"], plain()).unwrap();
        let spec = made(&["--workers-min", "2"], spec).unwrap();
        let elastic = spec.elastic.clone().unwrap();
        assert_eq!((elastic.min, elastic.max, elastic.policy), (2, 5, Preset::Arrebol.elastic().policy));
        assert_eq!(made(&["--elastic-preset", "none"], spec).unwrap().elastic, None);
    }

    #[test]
    fn where_its_workers_may_be_is_said_and_taken_back() {
        let first = ["--worker-label", "disk=ssd", "--worker-label", "zone=a=1", "--worker-layer", "fog"];
        let spec = made(&first, plain()).unwrap();
        assert_eq!(spec.workers.labels, [("disk".into(), "ssd".into()), ("zone".into(), "a=1".into())].into());
        assert_eq!(spec.workers.layer, Some(Layer::Fog));
        let then = ["--worker-label", "none", "--worker-label", "gpu=yes", "--worker-layer", "none"];
        let spec = made(&then, spec).unwrap();
        assert_eq!((spec.workers.labels, spec.workers.layer), ([("gpu".into(), "yes".into())].into(), None));
    }

    #[test]
    fn slips_are_told_with_how_to_write_it() {
        for (args, said) in [
            (&["--share", "physics"][..], "physics=3"),
            (&["--share-by", "team"], "label:NAME"),
            (&["--half-life", "2h"], "--policy fair-share"),
            (&["--running-max", "many"], "none for no limit"),
            (&["--running-max", "0"], "--running-max: nothing could ever run"),
            (&["--policy", "lifo"], "fair-share"),
            (&["--workers-max", "3"], "--elastic-preset arrebol"),
            (&["--elastic-preset", "arrebol", "--workers-max", "0"], "--workers-max: no worker could ever start"),
            (&["--elastic-preset", "magic"], "sentryweb-workers"),
            (&["--worker-label", "ssd"], "disk=ssd"),
            (&["--worker-layer", "sky"], "edge, fog or cloud"),
            (&["--worker-mem", "4"], "--worker-mem: 4B is too little"),
        ] {
            let error = made(args, plain()).unwrap_err();
            assert!(error.contains(said), "{args:?} gave {error}");
        }
    }
}
