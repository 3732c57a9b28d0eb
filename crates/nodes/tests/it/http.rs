//! Nodes that only speak HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use mutirao_core::SystemClock;
use mutirao_nodes::breaker::Health;
use mutirao_nodes::errand::{End, Errand, NotSent, Reach};
use mutirao_nodes::http::HttpWay;
use mutirao_nodes::preference::Protocol;
use mutirao_nodes::wire::Message;
use mutirao_testkit::wait::eventually;
use mutirao_tls::Trust;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::house::{Device, House, LONG, errand, within};

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn registration(node: &str, endpoint: &str, action: &str) -> Value {
    json!({
        "endpoint": endpoint, "layer": "FOG", "type": "Python", "nodeId": node, "forceRegister": true,
        "actions": [format!("urn:mutirao:Action:{action}")],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_by_http_is_given_a_message_and_answers_at_once_or_later() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    HttpWay::open(&house.board, &Trust::nobody(), SystemClock::shared()).unwrap();
    let manager = serve(house.board.capability().open).await;
    let at_once = post(async |Json(message): Json<Message>| Json(Message { data: "\"done\"".into(), ..message }));
    let node = serve(Router::new().route("/mutirao/messages", at_once)).await;
    let password = house.let_in("web").await;
    mutirao_tls::install();
    let http = reqwest::Client::new();
    let health = http.get(format!("http://{manager}/actuator/health")).send().await.unwrap();
    assert_eq!(health.text().await.unwrap(), r#"{"status":"UP"}"#);

    let say = |place: &str, user: &str, body: Value| {
        let request = http.post(format!("http://{manager}/mutirao/{place}")).json(&body);
        let request = if user.is_empty() { request } else { request.basic_auth(user, Some(&password)) };
        async move { request.send().await.unwrap() }
    };
    let endpoint = format!("http://{node}");
    let ack = say("nodes/register", "web", registration("web", &endpoint, "fetch")).await;
    assert_eq!(ack.json::<Value>().await.unwrap()["nodeId"], "web");
    let anonymous = say("nodes/register", "", registration("other", &endpoint, "fetch")).await;
    assert_eq!(anonymous.status(), 422, "{}", anonymous.text().await.unwrap());
    assert_eq!(say("nodes/register", "nobody", registration("x", "", "a")).await.status(), 401);

    let gone = house.board.send(errand("r1", "fetch")).await.unwrap();
    assert_eq!((gone.node.as_str(), gone.over), ("web", Protocol::Http));
    eventually("it answered", LONG, async || house.desk.returned.lock().len() == 1).await;
    assert_eq!(house.desk.returned.lock()[0].end, End::Ok("\"done\"".into()));
    let late = json!({ "actionTo": "x", "requestID": "r1", "messageData": "{}" });
    assert_eq!(say("task/handler/saida", "web", late).await.status(), 204);
    assert_eq!(house.desk.returned.lock().len(), 2);
    assert_eq!(say("process/request/entrada", "web", json!({})).await.status(), 422, "it may not ask");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_endpoint_leads_to_the_machine_s_surroundings_and_one_that_is_down_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    HttpWay::open(&house.board, &Trust::nobody(), SystemClock::shared()).unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let redirect = post(async || axum::response::Redirect::temporary("http://169.254.169.254/"));
    let moved = serve(Router::new().route("/mutirao/messages", redirect)).await;
    let endpoints = [("closed", format!("http://{closed}"), "refused"), ("moved", format!("http://{moved}"), "307")];
    let lamp = house.device("lamp").await;
    for (endpoint, words) in [
        ("http://169.254.169.254", "169.254.169.254 is an address of this machine's surroundings"),
        ("http://[::ffff:169.254.169.254]", "::ffff:169.254.169.254 is an address"),
        ("http://gate?x=1", "gate?x=1\" is no endpoint"),
        ("not a url", "\"not a url\" is no endpoint"),
    ] {
        lamp.say("mutirao.nodes.register", registration("lamp", endpoint, "x").to_string()).await;
        let told = async || house.reasons().await.iter().any(|why| why.contains(words));
        eventually(endpoint, LONG, told).await;
        assert!(house.board.node(&"lamp".parse().unwrap()).is_none(), "{endpoint}");
    }
    for (name, endpoint, words) in endpoints {
        let device = Device::passing_by(&house, name).await;
        let mut said = registration(name, &endpoint, name);
        said["layer"] = "CLOUD".into();
        device.say("mutirao.nodes.register", said.to_string()).await;
        // It does not listen on its topic any more, so only HTTP is left.
        drop(device);
        let why = eventually_unreachable(&house, name).await;
        assert!(why.to_lowercase().contains(words), "{name}: {why}");
        house.board.remove_device(name, "test").await.unwrap();
        assert!(matches!(house.board.send(errand(name, name)).await, Err(NotSent::Nobody(_))), "it was kept out");
    }
    house.close().await;
}

/// Else whoever has a password would have the manager ask whatever listens there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_on_the_manager_s_machine_only_if_it_speaks_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::not_here(folder.path()).await;
    HttpWay::open(&house.board, &Trust::nobody(), SystemClock::shared()).unwrap();
    let open = house.board.capability().open;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let manager = listener.local_addr().unwrap();
    let known = open.clone().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, known).await });
    let elsewhere = serve(open).await;
    let at_once = post(async |Json(message): Json<Message>| Json(Message { data: "1".into(), ..message }));
    let node = serve(Router::new().route("/mutirao/messages", at_once)).await;
    mutirao_tls::install();
    let (http, password) = (reqwest::Client::new(), house.let_in("web").await);
    let say = async |manager: SocketAddr, passed_on: bool, endpoint: &str| {
        let url = format!("http://{manager}/mutirao/nodes/register");
        let request = http.post(url).json(&registration("web", endpoint, "fetch")).basic_auth("web", Some(&password));
        let request = if passed_on { request.header("x-forwarded-for", "192.0.2.7") } else { request };
        request.send().await.unwrap().status().as_u16()
    };
    let endpoint = format!("http://{node}");
    assert_eq!(say(elsewhere, false, &endpoint).await, 422, "nobody knows from where it spoke");
    assert_eq!(say(manager, true, &endpoint).await, 422, "by a proxy that is here");
    let lamp = house.device("lamp").await;
    lamp.say("mutirao.nodes.register", registration("lamp", &endpoint, "fetch").to_string()).await;
    let told = async || house.reasons().await.iter().any(|why| why.contains("nodes.loopback=allowed lets it be"));
    eventually("why not", LONG, told).await;
    assert_eq!(house.board.nodes().len(), 0);

    for (request, endpoint) in [("r1", endpoint), ("r2", format!("http://localhost:{}", node.port()))] {
        assert_eq!(say(manager, false, &endpoint).await, 200);
        house.board.send(errand(request, "fetch")).await.unwrap();
        let end = async || house.desk.returned.lock().iter().any(|one| one.request == request);
        eventually("it answered", LONG, end).await;
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_takes_its_time_keeps_nobody_else_waiting_and_is_cut_off_when_nobody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::open(folder.path()).await;
    HttpWay::open(&house.board, &Trust::nobody(), SystemClock::shared()).unwrap();
    let manager = serve(house.board.capability().open).await;
    let open = Arc::new(AtomicUsize::new(0));
    let counted = open.clone();
    // It takes whatever it is given, and never answers; whoever hangs up is not counted any more.
    let never = post(async move || {
        struct One(Arc<AtomicUsize>);
        impl Drop for One {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let _one = One(counted.clone());
        std::future::pending::<()>().await
    });
    let slow = serve(Router::new().route("/mutirao/messages", never)).await;
    let at_once = post(async |Json(message): Json<Message>| Json(Message { data: "1".into(), ..message }));
    let quick = serve(Router::new().route("/mutirao/messages", at_once)).await;
    mutirao_tls::install();
    let http = reqwest::Client::new();
    for (name, address) in [("slow", slow), ("quick", quick)] {
        let password = house.let_in(name).await;
        let mut said = registration(name, &format!("http://{address}"), name);
        said["slots"] = 1_000.into();
        let url = format!("http://{manager}/mutirao/nodes/register");
        assert!(
            http.post(url).json(&said).basic_auth(name, Some(&password)).send().await.unwrap().status().is_success()
        );
    }
    // More than may be under way to all nodes together.
    let sending = (0..300).map(|n| {
        let board = house.board.clone();
        tokio::spawn(async move { board.send(errand(&format!("slow-{n}"), "slow")).await })
    });
    let sending: Vec<_> = sending.collect();
    eventually("as many as may be are under way", LONG, async || open.load(Ordering::SeqCst) >= 32).await;
    for n in 0..20 {
        let gone = house.board.send(errand(&format!("quick-{n}"), "quick")).await.unwrap();
        assert_eq!(gone.node.as_str(), "quick");
    }
    eventually("all of them are answered", LONG, async || house.desk.returned.lock().len() == 20).await;
    let (mut given, mut no_room) = (0, 0);
    for sent in sending {
        match within("it is sent, or not", sent).await.unwrap() {
            Ok(_) => given += 1,
            Err(NotSent::Full) => no_room += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((given, no_room), (32, 268));
    let info = house.board.node(&"slow".parse().unwrap()).unwrap();
    assert_eq!((info.in_flight, info.health[0].1), (32, Health::Ok), "that there is no room here is not its fault");

    // Another manager's tasks, of a second each: past that nobody waits, and the requests end.
    let brief = |n: u32| Errand { timeout: Duration::from_secs(1), ..errand(&format!("brief-{n}"), "slow") };
    let elsewhere = tempfile::tempdir().unwrap();
    let other = House::open(elsewhere.path()).await;
    HttpWay::open(&other.board, &Trust::nobody(), SystemClock::shared()).unwrap();
    let device = Device::passing_by(&other, "slow").await;
    device.say("mutirao.nodes.register", registration("slow", &format!("http://{slow}"), "slow").to_string()).await;
    drop(device);
    eventually("only HTTP is left", LONG, async || other.mqtt.port().gauges().connected == 0).await;
    let before = open.load(Ordering::SeqCst);
    let cut = within("it is cut", other.board.send(brief(0))).await;
    assert!(matches!(&cut, Err(NotSent::Unreachable { why, .. }) if why.contains("timed out")), "{cut:?}");
    eventually("its request has ended", LONG, async || open.load(Ordering::SeqCst) <= before).await;
    other.close().await;
    house.close().await;
}

async fn eventually_unreachable(house: &House, name: &str) -> String {
    let said = std::cell::RefCell::new(String::new());
    eventually("only HTTP is left", LONG, async || match house.board.send(errand(name, name)).await {
        Err(NotSent::Unreachable { why, .. }) => {
            *said.borrow_mut() = why;
            true
        }
        _ => false,
    })
    .await;
    said.into_inner()
}
