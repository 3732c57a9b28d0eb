//! Nodes that are functions of this process: what reaches them is as unreliable as a test asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::clock::Clock;
use mutirao_core::{Dice, Problem, SystemClock};
use mutirao_flows::Flows;
use mutirao_flows::wire::data_of;
use mutirao_nodes::errand::{End, Errand, Gone, Nobody, NotSent, Reach, Returned, Taker};
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::routing::{Ended, Place};
use mutirao_nodes::wire::Parameters;
use mutirao_nodes::{ActionName, Layer};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub struct Workshop {
    /// Where results go: of several managers, the one that a node happens to reach.
    pub taker: Mutex<Option<Flows>>,
    dice: Dice,
    /// Of a hundred results, so many are lost, and so many come twice.
    pub lost: u64,
    pub doubled: u64,
    pub closed: Mutex<bool>,
    /// Results are kept here, and not said.
    pub holds: Mutex<bool>,
    pub held: Mutex<Vec<Returned>>,
    /// How often each task was run, by its action and input.
    pub done: Mutex<BTreeMap<String, u32>>,
    pub answers: Mutex<Vec<String>>,
    /// Who was told each.
    pub told: Mutex<Vec<Option<String>>>,
    /// What every action says of itself.
    pub declared: Mutex<Option<Parameters>>,
    pub ended: Mutex<Vec<Ended>>,
}

impl Workshop {
    pub fn new(lost: u64, doubled: u64) -> Arc<Self> {
        Arc::new(Self {
            taker: Mutex::default(),
            dice: Dice::seeded(7),
            lost,
            doubled,
            closed: Mutex::new(false),
            holds: Mutex::new(false),
            held: Mutex::default(),
            done: Mutex::default(),
            answers: Mutex::default(),
            told: Mutex::default(),
            declared: Mutex::default(),
            ended: Mutex::default(),
        })
    }
}

fn work(action: &str, input: &Value) -> End {
    let last = action.rsplit('.').next().unwrap_or_default();
    match last {
        "double" => End::Ok(json!(input["n"].as_i64().unwrap_or_default() * 2).to_string()),
        "list" => End::Ok(json!({"rows": [1, 2, 3]}).to_string()),
        "numbers" => End::Ok(format!("[{}1]", "1,".repeat(20_000))),
        "large" => End::Ok("x".repeat(300_000)),
        "fail" => End::Failed("it always does\0".into()),
        // As a node may say it: what stores do not take, and more in each other than is read.
        "nul" => End::Ok(json!({"a\0b": "c\0d"}).to_string()),
        "deep" => End::Ok(format!("{}1{}", "[".repeat(127), "]".repeat(127))),
        "deeper" => End::Ok(format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000))),
        _ => End::Ok(json!({"did": last, "with": input}).to_string()),
    }
}

#[async_trait]
impl Reach for Workshop {
    async fn send(&self, errand: Errand) -> Result<Gone, NotSent> {
        if *self.closed.lock() {
            return Err(NotSent::Nobody(Nobody::HasIt(errand.action)));
        }
        let input = data_of(&errand.data);
        *self.done.lock().entry(format!("{} {}", errand.action, errand.data)).or_default() += 1;
        let end = work(errand.action.as_str(), &input);
        let (lost, doubled) = (self.dice.below(100) < self.lost, self.dice.below(100) < self.doubled);
        let node: mutirao_nodes::NodeId = "shop".parse().unwrap();
        let returned = Returned { request: errand.request, end, node: Some(node.clone()) };
        let gone = Gone { node, layer: Layer::Cloud, over: Protocol::Http, why: "the only one".into() };
        if *self.holds.lock() {
            self.held.lock().push(returned);
            return Ok(gone);
        }
        let taker = self.taker.lock().clone();
        let wait = Duration::from_millis(self.dice.below(8));
        tokio::spawn(async move {
            SystemClock.sleep(wait).await;
            let Some(taker) = taker else { return };
            if !lost {
                let _ = taker.returned(returned.clone()).await;
            }
            if doubled {
                let _ = taker.returned(returned).await;
            }
        });
        Ok(gone)
    }

    fn ended(&self, _request: &str, how: Ended) {
        self.ended.lock().push(how);
    }

    async fn answer(&self, text: String, client: Option<&str>) -> Result<(), Problem> {
        self.answers.lock().push(text);
        self.told.lock().push(client.map(str::to_owned));
        Ok(())
    }

    fn nobody(&self, _: &ActionName, place: &Place) -> Option<Nobody> {
        place.node.clone().map(|asked| Nobody::IsCalled { asked, near: None })
    }

    fn parameters(&self, _: &ActionName) -> Option<Parameters> {
        *self.declared.lock()
    }

    fn catalogue(&self) -> BTreeSet<ActionName> {
        let ours = ["double", "list", "numbers", "large", "fail", "nul", "deep", "deeper", "a", "b", "c"]
            .map(|name| format!("actions.{name}"));
        let all = ours.into_iter().chain(["builtin.http".into(), "builtin.cel".into()]);
        all.map(|name| format!("urn:mutirao:Action:{name}").parse().unwrap()).collect()
    }
}
