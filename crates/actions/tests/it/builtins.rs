//! Actions that are built in.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::http::StatusCode;
use axum::routing::{get, post};
use mutirao_actions::builtin::{Means, Publish};
use mutirao_client::Believe;
use mutirao_core::SystemClock;
use mutirao_nodes::Namespace;
use mutirao_nodes::errand::End;
use mutirao_probes::{Probes, Reach, Strangers};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::stage::{Stage, ok, why};

#[derive(Default)]
struct Said(Mutex<Vec<(String, String)>>);

#[async_trait]
impl Publish for Said {
    async fn publish(&self, to: &str, text: String) -> Result<(), String> {
        self.0.lock().push((to.into(), text));
        Ok(())
    }
}

fn with(means: Means) -> Stage {
    let stage = Stage::new();
    means.put_into(&stage.table, &Namespace::default()).unwrap();
    stage
}

fn probes(loopback: Strangers) -> Option<Probes> {
    let reach = Reach::new(&Believe::default(), Strangers::Refused).unwrap().for_calls(loopback);
    Some(Probes::new(reach, SystemClock::shared()))
}

async fn server() -> String {
    let shop = axum::Router::new()
        .route("/json", get(async || Json(json!({"stock": 3}))))
        .route("/text", get(async || "plain"))
        .route("/long", get(async || "x".repeat(100_000)))
        .route("/echo", post(async |body: String| body))
        .route("/no", get(async || StatusCode::NOT_FOUND));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, shop).await });
    format!("http://{address}")
}

fn json_of(end: End) -> Value {
    match end {
        End::Ok(output) => serde_json::from_str(&output).unwrap(),
        End::Failed(why) => panic!("{why}"),
    }
}

#[tokio::test]
async fn http_calls_give_status_and_body_and_go_only_where_they_may() {
    let stage = with(Means { probes: probes(Strangers::Allowed), ..Means::default() });
    let base = server().await;
    let call = async |asked: Value| stage.run("builtin.http", &asked.to_string()).await;
    let said = json_of(call(json!({"url": format!("{base}/json")})).await);
    assert_eq!((&said["status"], &said["json"]["stock"]), (&json!(200), &json!(3)));
    assert_eq!(json_of(call(json!({"url": format!("{base}/text")})).await)["body"], "plain");
    let sent = json_of(call(json!({"url": format!("{base}/echo"), "json": {"a": 1}})).await);
    assert_eq!(sent["json"], json!({"a": 1}));
    assert_eq!(why(call(json!({"url": format!("{base}/no")})).await), "it answered with status 404");
    let any = json_of(call(json!({"url": format!("{base}/no"), "any_status": true})).await);
    assert_eq!(any["status"], 404);
    assert!(why(call(json!({"url": format!("{base}/long")})).await).contains("longer than"));
    assert!(why(call(json!({"url": "http://169.254.169.254/latest"})).await).contains("of its cloud"));
    let barred = with(Means { probes: probes(Strangers::Refused), ..Means::default() });
    let port = base.rsplit_once(':').unwrap().1;
    for own in [base.clone(), format!("http://localhost:{port}"), format!("http://[::ffff:127.0.0.1]:{port}")] {
        let asked = json!({"url": format!("{own}/json")}).to_string();
        let line = why(barred.run("builtin.http", &asked).await);
        assert!(line.contains("unless flows.loopback allows it"), "{own}: {line}");
    }
    assert!(why(call(json!({"url": "ftp://x"})).await).contains("http and https are"));
    assert!(why(call(json!({"ulr": "x"})).await).starts_with("its input cannot be read: unknown field `ulr`"));
}

#[tokio::test]
async fn expressions_transform_their_input_within_bounds() {
    let stage = with(Means::default());
    let run = async |expression: &str, input: Value| {
        stage.run("builtin.cel", &json!({"expression": expression, "input": input}).to_string()).await
    };
    assert_eq!(run("input.v.map(x, x * 2.0)", json!({"v": [1.5]})).await, ok("[3.0]"));
    assert!(why(run("input.", json!(1)).await).contains("does not compile"));
    let list: Vec<u32> = (0..5_000).collect();
    assert!(why(run("input.map(a, input.map(b, a * b))", json!(list)).await).contains("too much"));
}

#[tokio::test]
async fn what_is_published_goes_where_the_shell_says_and_what_was_not_given_is_not_there() {
    let said = Arc::new(Said::default());
    let stage = with(Means { publish: Some(said.clone()), ..Means::default() });
    let publish = async |asked: Value| stage.run("builtin.publish", &asked.to_string()).await;
    assert_eq!(json_of(publish(json!({"to": "a/b", "data": {"x": 1}})).await), json!({"to": "a/b", "bytes": 7}));
    assert_eq!(json_of(publish(json!({"to": "a/b", "data": "text"})).await)["bytes"], 4);
    for not_there in ["", "mutirao.task.handler.saida", "mutirao/node/x/in", "$SYS/x"] {
        assert!(why(publish(json!({"to": not_there, "data": 1})).await).starts_with("to: "), "{not_there}");
    }
    let expected = [("a/b".to_owned(), r#"{"x":1}"#.to_owned()), ("a/b".to_owned(), "text".to_owned())];
    assert_eq!(*said.0.lock(), expected);
    assert!(why(stage.run("builtin.kv_get", "{}").await).contains("this node has no"));
}
