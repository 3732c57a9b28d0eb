//! Every setting, once: its key, type, default and help.

use std::net::SocketAddr;

use mutirao_core::QueueName;
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_nodes::Namespace;

use super::kinds::{
    Auto, BrokerUrl, CacheUrl, Count, Crew, DatabaseUrl, File, Folder, InLayer, Kind, Labels, Lease, Leave, Level,
    LogFormat, LogSize, ManagementUrl, Many, Maybe, Names, OwnChecker, OwnHost, Port, Routing, Secret, ServerUrl,
    Share, StreamFiles, StreamMover, Switch, WorkerWay,
};
use super::{ConfigError, Values};

/// Whether a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    Open,
    Masked,
}

/// A setting as people see it.
pub struct Setting {
    pub key: &'static str,
    pub kind: &'static str,
    pub default: &'static str,
    help: &'static str,
    pub secrecy: Secrecy,
    pub check: fn(&str) -> Result<(), String>,
}

impl Setting {
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    pub fn find(key: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.key == key)
    }

    /// `worker.count` is `MUTIRAO_WORKER_COUNT`.
    pub fn env(&self) -> String {
        format!("MUTIRAO_{}", self.key.replace('.', "_").to_uppercase())
    }
}

macro_rules! settings {
    ($( $(#[doc = $help:literal])+ $key:literal => $field:ident: $kind:ty = $default:literal; )+) => {
        /// The settings, read.
        #[derive(Clone, Debug)]
        pub struct Settings { $( $(#[doc = $help])+ pub $field: $kind, )+ }

        impl Settings {
            pub fn read(values: &Values) -> Result<Self, ConfigError> {
                Ok(Self { $( $field: values.parse($key)?, )+ })
            }
        }

        pub const TABLE: &[Setting] = &[ $( Setting {
            key: $key,
            kind: <$kind as Kind>::NAME,
            default: $default,
            help: concat!($($help),+),
            secrecy: <$kind as Kind>::SECRECY,
            check: |text| text.parse::<$kind>().map(drop).map_err(|why| <$kind as Kind>::refusal(text, why)),
        }, )+ ];
    };
}

settings! {
    /// The folder in which an installation keeps everything: its database, logs of tasks, address and admin token.
    "data" => data: Folder = "./mutirao-data";
    /// Where the API listens. Port 0 takes any free one.
    "listen" => listen: SocketAddr = "127.0.0.1:7070";
    /// Where a manager keeps everything: postgres://user:password@host:5432/database; auto is SQLite in the data folder.
    "database" => database: Auto<DatabaseUrl> = "auto";
    /// What moves tasks and reports: amqp://user:password@host:5672/vhost is a RabbitMQ; auto is inside the manager.
    "broker" => broker: Auto<BrokerUrl> = "auto";
    /// Where values of keys are kept at hand: redis://user:password@host:6379/0 (rediss:// for TLS) is a Redis that all
    /// managers share; auto is inside the manager while there can be only one.
    "cache" => cache: Auto<CacheUrl> = "auto";
    /// RabbitMQ's management API, where each worker gets a user: http://user:password@host:15672; auto is beside the broker.
    "broker_management" => broker_management: Auto<ManagementUrl> = "auto";
    /// The API that commands speak to; auto takes the one whose address is in the data folder.
    "url" => url: Auto<ServerUrl> = "auto";
    /// The token that commands show; auto takes the admin token in the data folder. Best given as MUTIRAO_TOKEN.
    "token" => token: Auto<Secret> = "auto";
    /// How much is logged: error, warn, info, debug or trace; or a filter such as info,mutirao_jobs=debug.
    "log.level" => log_level: Level = "info";
    /// How it is logged: human, json, or auto: human on a terminal and json otherwise.
    "log.format" => log_format: LogFormat = "auto";
    /// Worker processes that `up` keeps running.
    "worker.count" => worker_count: Count = "2";
    /// The queue whose tasks they take.
    "worker.queue" => worker_queue: QueueName = "default";
    /// The cpus each of them gives to tasks; auto shares out the machine's evenly.
    "worker.cpus" => worker_cpus: Auto<Cpus> = "auto";
    /// The memory each of them gives to tasks; auto shares out the machine's evenly.
    "worker.memory" => worker_memory: Auto<Bytes> = "auto";
    /// How a worker reaches the broker: auto is by itself where its manager has a RabbitMQ, link is through the manager.
    "worker.way" => worker_way: WorkerWay = "auto";
    /// How long a stop waits for running tasks to finish before it stops them.
    "drain" => drain: Span = "30s";
    /// Requests one caller may make in a second, over a while.
    "api.rate" => api_rate: Many = "500";
    /// Requests one caller may make at once.
    "api.burst" => api_burst: Many = "1000";
    /// Names, besides localhost and plain addresses, that clients may call the API by; separated by commas.
    "api.hosts" => api_hosts: Names = "none";
    /// Where the other managers and people reach this manager, as `shard list` shows it: https://one.example.org:7070; auto is
    /// where it listens, or this host's name when it listens everywhere.
    "api.url" => api_url: Auto<ServerUrl> = "auto";
    /// How many managers a resource manager keeps beside this one, on the same machine and at the same address, from the least to
    /// the most, by how full the machine's memory is: 0..3; or none. With PostgreSQL and RabbitMQ. The same for all managers.
    "api.managers" => api_managers: Crew = "none";
    /// Whether other managers of the same installation, of the same user on this machine, may listen at the same address
    /// (shared), so that the system deals connections out to them; or it is this one's alone (own). With api.managers it is shared.
    "api.port" => api_port: Port = "own";
    /// The certificate that the API shows, with its chain (PEM); with it, and tls.key, the API speaks https only.
    "tls.cert" => tls_cert: Maybe<File> = "none";
    /// The private key of that certificate (PEM, without a password). Only its owner should be able to read it.
    "tls.key" => tls_key: Maybe<File> = "none";
    /// Authorities (PEM) that commands and workers believe besides the system's, or the API's own certificate.
    "tls.ca" => tls_ca: Maybe<File> = "none";
    /// The collector that gets traces, by OTLP over HTTP: http://127.0.0.1:4318; none for no traces.
    "telemetry.otlp" => telemetry_otlp: Maybe<ServerUrl> = "none";
    /// The share of requests that are traced when their callers do not say so by a traceparent: from 0 to 1.
    "telemetry.sample" => telemetry_sample: Share = "0.001";
    /// A worker that has been silent for this long has lost what it held.
    "jobs.lease" => jobs_lease: Lease = "10s";
    /// Tasks that may be open (accepted and not ended) in the queues of one shard, of which there are 16; past it, submitting
    /// is refused until some have ended.
    "jobs.waiting_max" => jobs_waiting_max: Many = "50000000";
    /// How long a finished job is kept.
    "jobs.keep" => jobs_keep: Span = "30days";
    /// How long keys and tokens that were revoked or ran out are kept, for whoever looks at lists.
    "keys.keep" => keys_keep: Span = "30days";
    /// How long it is kept who let somebody in, or kept somebody out.
    "audit.keep" => audit_keep: Span = "365days";
    /// Nodes that the resource manager runs on this machine for workers of elastic queues; 0 for none.
    "elastic.nodes" => elastic_nodes: Count = "1";
    /// The cpus each of them gives to workers; auto shares out the machine's evenly.
    "elastic.cpus" => elastic_cpus: Auto<Cpus> = "auto";
    /// The memory each of them gives to workers; auto shares out the machine's evenly.
    "elastic.memory" => elastic_memory: Auto<Bytes> = "auto";
    /// Labels of these nodes, for queues that ask for some: zone=lab,disk=fast.
    "elastic.labels" => elastic_labels: Labels = "none";
    /// The layer of these nodes: edge, fog or cloud.
    "elastic.layer" => elastic_layer: InLayer = "cloud";
    /// A file with the machines that the resource manager reaches by ssh and may use as nodes (YAML); see docs/own-machines.md.
    "elastic.hosts" => elastic_hosts: Maybe<File> = "none";
    /// A file with commands that create, list and destroy machines, and the kinds that can be had (YAML); see docs/hooks.md.
    "elastic.hooks" => elastic_hooks: Maybe<File> = "none";
    /// Where workers on those machines reach the manager: https://jobs.example.org:7070; auto is over the ssh connection.
    "elastic.hosts_url" => elastic_hosts_url: Auto<ServerUrl> = "auto";
    /// How old the resource manager's key may become before it takes a new one.
    "elastic.key_age" => elastic_key_age: Span = "30days";
    /// What the names of exchanges, keys, topics and URNs of nodes begin with; sapparchi for workers that were written for that.
    "nodes.namespace" => nodes_namespace: Namespace = "mutirao";
    /// Which node gets a task: learned takes the one that promises the soonest answer, round-robin takes turns.
    "nodes.routing" => nodes_routing: Routing = "learned";
    /// Failures in a row, of one node at one action, after which it is spared for a while.
    "nodes.breaker_failures" => nodes_breaker_failures: Many = "3";
    /// For how long it is spared the first time; each further time twice as long.
    "nodes.breaker_pause" => nodes_breaker_pause: Span = "60s";
    /// How long a message for a node that is away waits at RabbitMQ, by AMQP or its MQTT plugin, if its task does not end before.
    "nodes.queue_age" => nodes_queue_age: Span = "1day";
    /// Answers to Tasks that lie at RabbitMQ unread, about; the oldest go first.
    "nodes.answers_max" => nodes_answers_max: Many = "100000";
    /// How long an answer to a Task lies there before nobody wants it any more.
    "nodes.answers_age" => nodes_answers_age: Span = "7days";
    /// Whether nodes may be reached by HTTP on the machine itself (127.0.0.1, ::1). Where there is one manager only, those that
    /// register by HTTP from there always are.
    "nodes.loopback" => nodes_loopback: Leave = "refused";
    /// Where the manager listens for MQTT itself, so that devices need no other broker: 127.0.0.1:1883; none for nowhere.
    "mqtt.listen" => mqtt_listen: Maybe<SocketAddr> = "none";
    /// Whether it speaks TLS there, with the API's certificate, where tls.cert and tls.key are set.
    "mqtt.tls" => mqtt_tls: Switch = "on";
    /// Whether devices that show neither a user nor a password may register as nodes. They are marked, and anybody who reaches
    /// the listener can speak as one of them.
    "mqtt.allow_anonymous" => mqtt_allow_anonymous: Switch = "off";
    /// Messages that wait for one device that is away, at most.
    "mqtt.queue_messages" => mqtt_queue_messages: Many = "1000";
    /// Their bytes, at most.
    "mqtt.queue_size" => mqtt_queue_size: Bytes = "1MiB";
    /// How long one waits there before nobody wants it any more.
    "mqtt.queue_age" => mqtt_queue_age: Span = "1day";
    /// How long runs of flows that ended are kept.
    "flows.keep" => flows_keep: Span = "7days";
    /// How much memory the runs that a manager looks after may take. Past it, new ones are refused until some have ended.
    "flows.memory" => flows_memory: Bytes = "512MiB";
    /// Whether builtin.http may reach link-local addresses and the metadata services of clouds, which hand out credentials. A
    /// node that has it reads its own settings.
    "flows.surroundings" => flows_surroundings: Leave = "refused";
    /// Whether builtin.http may reach the machine itself (127.0.0.1, ::1): much that listens there lets in whoever comes.
    "flows.loopback" => flows_loopback: Leave = "refused";
    /// How long kv remembers what its keys were: whoever lists or watches may be that far behind.
    "kv.keep" => kv_keep: Span = "1day";
    /// How many bytes of what its keys were kv keeps, shared out evenly over 16 shards; the oldest goes first, but nothing of the
    /// last two minutes. 0: whatever comes in kv.keep.
    "kv.keep_bytes" => kv_keep_bytes: Bytes = "4GiB";
    /// Writes of keys that may be on their way from one manager to one shard, of which there are 16, where RabbitMQ carries
    /// them; past it, writing is refused until some are applied.
    "kv.backlog_max" => kv_backlog_max: Many = "100000";
    /// How much memory the values of keys may take that are kept at hand inside the manager.
    "kv.cache_size" => kv_cache_size: Bytes = "64MiB";
    /// Whether the API has the routes /api of the store that kv takes the place of. They ask nobody who it is: switch them on
    /// only where everybody who reaches the API may read and write every key of the default namespace.
    "kv.legacy_routes" => kv_legacy_routes: Switch = "off";
    /// Whether a manager runs parts of streams itself (inside), or leaves them to hosts (none): see `mutirao role host`.
    "streams.host" => streams_host: OwnHost = "inside";
    /// Whether replicas of stages move to other hosts by what is measured: never (none), when the document's rules say so
    /// (adaptive) or ours (mutirao), or by chance (random), to compare with. See docs/adaptive-scheduling.md.
    "streams.mover" => streams_mover: StreamMover = "none";
    /// By which share the latency of a part must grow from one second to the next to count, for streams.mover=adaptive.
    "streams.mover_sensitivity" => streams_mover_sensitivity: Share = "0.25";
    /// The latency that streams.mover=mutirao keeps.
    "streams.latency" => streams_latency: Span = "100ms";
    /// Which files streams may read and write: those in the folder `files` of the data folder, or anywhere that the process may.
    /// Whoever may deploy streams can then read what it can: its admin token among it.
    "streams.files" => streams_files: StreamFiles = "folder";
    /// How much a log of a stream keeps at most; how far a reader may fall behind is bounded by a part of it. On RabbitMQ it is 1GiB
    /// whatever is said here.
    "streams.log_size" => streams_log_size: LogSize = "1GiB";
    /// How long it is kept what was done with streams, and where their parts went.
    "streams.keep" => streams_keep: Span = "30days";
    /// How long the outcomes of monitors are kept, and what is left of monitors that were removed.
    "monitors.keep" => monitors_keep: Span = "30days";
    /// Whether monitors may probe link-local addresses and the metadata services of clouds, which hand out credentials.
    "monitors.surroundings" => monitors_surroundings: Leave = "refused";
    /// Whether monitors may run programs (exec). They run on the manager's machine as its user, and can read what it can: its
    /// admin token among it. Allow it only where whoever may make monitors may have that.
    "monitors.exec" => monitors_exec: Leave = "refused";
    /// Whether a manager makes checks itself (inside), or leaves them to checkers (none): see `mutirao role checker`.
    "monitors.checker" => monitors_checker: OwnChecker = "inside";
    /// How many checks one checker makes of one host at once, at most.
    "monitors.host_max" => monitors_host_max: Many = "100";
    /// How many checks one checker makes at once, at most; 64 or more, up to 10,000, and half of the files it may open.
    "monitors.under_way_max" => monitors_under_way_max: Many = "10000";
    /// How many checkers a resource manager keeps, from the least to the most, by what there is to check: 1..10; or none, when they
    /// are started by hand. The same for all managers.
    "monitors.checkers" => monitors_checkers: Crew = "none";
    /// How many schedulers a resource manager keeps beside the managers, from the least to the most, by the cpu that they use:
    /// 1..3; or none. With PostgreSQL and RabbitMQ. The same for all managers.
    "monitors.schedulers" => monitors_schedulers: Crew = "none";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_good_value_and_every_setting_says_what_it_is_for() {
        for setting in TABLE {
            assert_eq!((setting.check)(setting.default), Ok(()), "{}", setting.key);
            assert!(setting.help().len() > 20, "{}", setting.key);
        }
    }

    #[test]
    fn no_two_settings_share_a_key_or_a_variable() {
        let mut names: Vec<String> = TABLE.iter().map(Setting::env).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
