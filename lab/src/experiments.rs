//! One file for each experiment.

pub mod arrebol;
pub mod batch;
pub mod budget;
pub mod esp;
pub mod kv;
pub mod overhead;
pub mod sapparchi;
pub mod sentryweb;
pub mod spawn;

pub const ALL: [(&str, &str); 23] = [
    (
        "arrebol",
        "a day of bursts by each elastic policy: waits, node-hours, cost; a thousand machines simulated, or real nodes",
    ),
    (
        "batch",
        "10,000 processes, no-op tasks and a million of them, beside xargs, GNU parallel, HyperQueue, Celery, Dramatiq",
    ),
    ("budget", "what a task costs each process in CPU, as a ratio to the committed budget"),
    (
        "esp-2",
        "who moves where, simulated: the document's 13 scenarios beside its figures, and ours in the same worlds",
    ),
    ("esp-3", "who moves where, simulated: noise only, a slow host, large states, a lost host, a hundred hosts"),
    ("esp-1", "what an overload of CPU, memory, its bandwidth, the network or the disk does to an operator's latency"),
    ("esp-4", "events/s and core of streams: keyed jumping windows beside timely and Bytewax, sliding ones by width"),
    (
        "esp-5",
        "from an append to the one who waits at the log's end, beside the raw way over the same disk, socket or server",
    ),
    ("kv-1", "PUTs from 255 clients, how fast they are applied, every key read back; beside the original"),
    ("kv-2", "GETs that the cache has and has not, beside the original"),
    ("kv-3", "how fast what was accepted is applied, beside the original and PostgreSQL alone"),
    ("moving", "a stage with much state goes to another host, live: the longest time without an event, beside before"),
    ("overhead", "no-op tasks end to end: tasks/s, CPU ledger, memory with a million waiting, cost of logging"),
    ("sapparchi-1", "the round trip of one action, beside the raw one through the same listener"),
    ("sapparchi-2", "a manager killed with 200 nodes registered and 2,000 runs under way"),
    ("sapparchi-3", "one node of eleven slowed to two seconds: calls answered within one, by turns and as learned"),
    ("sapparchi-4", "forty light steps one after the other, beside the published figures of workflow engines"),
    ("sapparchi-5", "a thousand nodes by MQTT on one machine: memory and CPU a node"),
    ("sentryweb-1", "one scheduler from 100 to 1,000,000 monitors: CPU, memory, lateness"),
    ("sentryweb-2", "a second scheduler joins, leaves, is killed, is frozen: probes and outcomes doubled and missing"),
    ("sentryweb-3", "one checker on fast, slow and varied endpoints, beside blackbox_exporter and threads in Python"),
    ("sentryweb-4", "50, 70, 100, 400 and 20 checks a second: what waits and how many checkers there are, over time"),
    ("spawn", "real /bin/true processes: tasks/s as a share of the raw posix_spawn rate"),
];
