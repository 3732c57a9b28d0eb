//! Trades: volume-weighted prices each minute, and prices that jump away from the last hundred.

use std::collections::BTreeMap;

use mutirao_testkit::{Installation, http, wait};
use serde_json::{Value, json};

use super::{example, with};
use crate::rabbit::Vhost;
use crate::streams::ends::Receiver;
use crate::streams::running::{SOON, deploy, lines, read, written};

/// 2026-01-01T00:00:00Z
const BEGIN_MS: i64 = 1_767_225_600_000;

#[derive(Clone, Debug)]
struct Trade {
    symbol: &'static str,
    price: f64,
    size: i64,
    ms: i64,
}

impl Trade {
    fn json(&self) -> Value {
        json!({"symbol": self.symbol, "price": self.price, "size": self.size, "ms": self.ms})
    }

    fn is_sound(&self) -> bool {
        self.price > 0.0 && self.size > 0 && (1..=5).contains(&self.symbol.len())
    }

    fn minute(&self) -> i64 {
        (self.ms - BEGIN_MS) / 60_000
    }
}

/// Four minutes of these symbols in their order, with some that make no sense; and one far later, with which all minutes
/// before it end. Prices are eighths, so that sums of them are exact in whatever order.
fn trades(symbols: &[&'static str], own: i64) -> Vec<Trade> {
    let mut all = Vec::new();
    for k in 0..160 {
        for (n, symbol) in symbols.iter().enumerate() {
            let n = n as i64 + own;
            let jump = if (k + 7 * n) % 31 == 30 { 40.0 } else { 0.0 };
            let price = 100.0 + n as f64 + ((k * (n + 3)) % 11) as f64 / 8.0 + jump;
            all.push(Trade { symbol, price, size: 1 + (k * 7 + n) % 13, ms: BEGIN_MS + k * 1_500 + n });
        }
        if k % 40 == 0 {
            let ms = BEGIN_MS + k * 1_500 + 10;
            all.extend([
                Trade { symbol: "FREE", price: 0.0, size: 5, ms },
                Trade { symbol: "TOOLONG", price: 5.0, size: 5, ms },
                Trade { symbol: "NONE", price: 5.0, size: 0, ms },
            ]);
        }
    }
    all.push(Trade { symbol: "LAST", price: 1.0, size: 1, ms: BEGIN_MS + 1_200_000 });
    all
}

/// The line of each candle, to the byte, by the minute and then by the symbol.
fn candles(all: &[Trade]) -> Vec<String> {
    let mut minutes: BTreeMap<(i64, String), Vec<&Trade>> = BTreeMap::new();
    for trade in all.iter().filter(|trade| trade.is_sound() && trade.symbol != "LAST") {
        minutes.entry((trade.minute(), trade.symbol.to_uppercase())).or_default().push(trade);
    }
    minutes.iter().map(|((minute, symbol), trades)| candle(*minute, symbol, trades)).collect()
}

fn candle(minute: i64, symbol: &str, trades: &[&Trade]) -> String {
    let mut prices: Vec<f64> = trades.iter().map(|trade| trade.price).collect();
    let (open, close) = (prices[0], prices[prices.len() - 1]);
    prices.sort_by(f64::total_cmp);
    let value: f64 = trades.iter().map(|trade| trade.price * trade.size as f64).sum();
    let volume: i64 = trades.iter().map(|trade| trade.size).sum();
    let (count, low, high) = (prices.len(), prices[0], prices[prices.len() - 1]);
    let (typical, vwap) = (prices[count.div_ceil(2) - 1], value / volume as f64);
    let at = |minute| format!("2026-01-01T00:{minute:02}:00Z");
    let (start, end) = (at(minute), at(minute + 1));
    format!(
        "{{\"symbol\":\"{symbol}\",\"start\":\"{start}\",\"end\":\"{end}\",\"value\":{value:?},\"volume\":{volume},\
         \"low\":{low:?},\"high\":{high:?},\"open\":{open:?},\"close\":{close:?},\"trades\":{count},\
         \"typical\":{typical:?},\"vwap\":{vwap:?}}}\n"
    )
}

/// A field of a line, as it is written.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {line}"));
    rest.split([',', '}']).next().unwrap_or_default().trim_matches('"')
}

/// Symbol, price, when, and the mean of the hundred; and their variance, which depends on how it is rounded.
type Spike = ((String, f64, String, f64), f64);

fn spikes(all: &[Trade]) -> Vec<Spike> {
    let (mut last, mut found) = (BTreeMap::<&str, Vec<f64>>::new(), Vec::new());
    for trade in all.iter().filter(|trade| trade.is_sound()) {
        let prices = last.entry(trade.symbol).or_default();
        prices.push(trade.price);
        let Some(hundred) = prices.len().checked_sub(100).map(|from| &prices[from..]) else { continue };
        let mean = hundred.iter().sum::<f64>() / 100.0;
        let spread = hundred.iter().map(|price| (price - mean).powi(2)).sum::<f64>() / 100.0;
        if (trade.price - mean).abs() > 4.0 * spread.sqrt() {
            let at = mutirao_streams::time::format(trade.ms * 1_000).unwrap();
            found.push(((trade.symbol.to_uppercase(), trade.price, at, mean), spread));
        }
    }
    found.sort_by(|one, other| one.partial_cmp(other).unwrap());
    found
}

fn spike(line: &str) -> Spike {
    let float = |name: &str| field(line, name).parse::<f64>().unwrap_or_else(|_| panic!("{name} in {line}"));
    assert_eq!(field(line, "trades"), "100", "{line}");
    let text = |name: &str| field(line, name).to_owned();
    ((text("symbol"), float("price"), text("at"), float("mean")), float("spread"))
}

/// Whatever order those of different symbols came in.
fn same(mut found: Vec<Spike>, expected: &[Spike], what: &str) {
    found.sort_by(|one, other| one.partial_cmp(other).unwrap());
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.0, expected.0, "{what}");
        assert!((found.1 - expected.1).abs() < 1e-9 * expected.1, "{what}: {found:?}, not {expected:?}");
    }
}

/// Where half of the symbols come from, and how.
struct Feed<'a> {
    definition: &'a str,
    feed: &'a dyn Fn(&Installation, &[Trade]),
}

fn push(up: &Installation, source: &str, trades: &[Trade]) {
    for some in trades.chunks(97) {
        let events: Vec<Value> = some.iter().map(Trade::json).collect();
        let line = format!("POST /v1/streams/trades/sources/{source}");
        let answer = up.request(&line, Value::from(events).to_string().as_bytes());
        assert_eq!(answer.status, 202, "{}", answer.text());
    }
}

fn prices_and_spikes_are_what_they_are(up: &Installation, feed: &Feed<'_>) {
    // It is busy at first.
    let desk = Receiver::start(|n| if n < 3 { 503 } else { 204 });
    let mut text = with(feed.definition, "https://desk.example.org/spikes", &desk.url());
    // These are trades of long ago: time must not go on by the clock.
    text = text.replace("time: time(ms * 1000)", "time: time(ms * 1000)\n    idle: never");
    let file = written(up, "trades.yaml", &text);
    assert_eq!(deploy(up, &[], &file).code, Some(0));
    let (fed, pushed) = (trades(&["BB", "C1"], 5), trades(&["AAA", "ddd", "eE"], 1));
    (feed.feed)(up, &fed);
    push(up, "pushed", &pushed);

    let all: Vec<Trade> = fed.into_iter().chain(pushed).collect();
    let expected = candles(&all);
    assert_eq!(expected.len(), 4 * 5);
    wait::until("all minutes", SOON, || lines(up, "candles.jsonl").len() >= expected.len());
    assert_eq!(std::fs::read_to_string(up.data().join("files/candles.jsonl")).unwrap(), expected.concat());
    for symbol in ["AAA", "BB", "C1", "DDD", "EE"] {
        let last =
            expected.iter().rfind(|line| field(line, "symbol") == symbol).map(|line| field(line, "vwap")).unwrap();
        let kept = || up.ok(&["kv", "get", &format!("vwap/{symbol}")]).trim() == last;
        wait::until("the last price to be kept", SOON, kept);
    }

    let expected = spikes(&all);
    assert!(expected.len() >= 5, "{expected:?}");
    let printed = || -> Vec<Spike> {
        let out = up.stdout();
        out.lines().filter(|line| line.contains("\"spread\"")).map(spike).collect()
    };
    wait::until("the spikes to be printed", SOON, || printed().len() >= expected.len());
    same(printed(), &expected, "printed");
    wait::until("the desk to know them", SOON, || desk.taken().len() >= expected.len());
    let taken = desk.taken();
    same(taken.iter().map(|(_, body)| spike(body)).collect(), &expected, "told");
    let keys: std::collections::BTreeSet<&String> = taken.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), taken.len(), "each has a number of its own");
    assert!(desk.asked() >= taken.len() + 3, "it was away at first");
}

#[test]
fn prices_by_volume_and_spikes_are_what_is_calculated_elsewhere() {
    let up = Installation::setup().workers(0).set("flows.loopback", "allowed").start();
    let definition = with(&example("streams/trades.yaml"), "amqp: { queue: trades }", "http: {}");
    let feed = |up: &Installation, trades: &[Trade]| push(up, "feed", trades);
    prices_and_spikes_are_what_they_are(&up, &Feed { definition: &definition, feed: &feed });
}

/// To a queue, through the management of RabbitMQ; whether it was there.
pub fn publish(vhost: &Vhost, exchange: &str, key: &str, body: &str) -> bool {
    let name = vhost.broker.rsplit('/').next().unwrap();
    let address = vhost.management.trim_start_matches("http://").parse().unwrap();
    // guest:guest
    let headers = [("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="), ("Content-Type", "application/json")];
    let line = format!("POST /api/exchanges/{name}/{exchange}/publish");
    let message = json!({"properties": {}, "routing_key": key, "payload": body, "payload_encoding": "string"});
    let answer = http::request(address, &line, &headers, message.to_string().as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    read(&answer.text())["routed"] == true
}

#[test]
fn trades_of_a_queue_give_the_same_prices_and_spikes() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(0)
        .set("flows.loopback", "allowed")
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let feed = |_: &Installation, trades: &[Trade]| {
        for some in trades.chunks(97) {
            let events: Vec<Value> = some.iter().map(Trade::json).collect();
            let text = Value::from(events).to_string();
            wait::until("the queue", SOON, || publish(&vhost, "amq.default", "trades", &text));
        }
    };
    prices_and_spikes_are_what_they_are(&up, &Feed { definition: &example("streams/trades.yaml"), feed: &feed });
}
