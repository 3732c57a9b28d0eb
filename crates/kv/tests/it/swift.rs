//! Two ways lead to a key's routes; nobody can tell by the answer which was taken.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use mutirao_core::auth::{Principal, Role};
use mutirao_kv::Legacy;
use tower::ServiceExt;

use crate::engine::Engine;
use crate::running::{ana, start};

type Headers<'a> = &'a [(&'a str, &'a str)];

/// What can be compared: the name of a write and the moment differ, and the length is added further out.
async fn told(response: Response) -> (u16, Vec<(String, String)>, String) {
    let (parts, body) = response.into_parts();
    let told = ["content-type", "retry-after", "mutirao-expires-at"];
    let header = |name: &str| Some((name.to_owned(), parts.headers.get(name)?.to_str().ok()?.to_owned()));
    let body = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    let body = match serde_json::from_str::<serde_json::Value>(&body) {
        Ok(serde_json::Value::Object(mut view)) => {
            view.remove("write");
            view.remove("revision");
            serde_json::Value::Object(view).to_string()
        }
        _ => body,
    };
    (parts.status.as_u16(), told.into_iter().filter_map(header).collect(), body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_short_way_answers_as_the_long_one_does() {
    let engine = Engine::sqlite();
    let kv = start(&engine).await;
    let capability = kv.capability(Legacy::Off);
    let swift = capability.swift.clone().unwrap();
    let none: Headers = &[];
    let requests: &[(&str, &str, Headers, &str)] = &[
        ("GET", "a", none, ""),
        ("PUT", "a", none, "1"),
        ("GET", "a", none, ""),
        ("PUT", "a", &[("content-type", "application/json")], "{}"),
        ("GET", "a", none, ""),
        ("PUT", "a", &[("if-none-match", "*")], "2"),
        ("PUT", "a", &[("if-match", "\"999999\"")], "2"),
        ("PUT", "a", &[("if-match", "rubbish")], "2"),
        ("PUT", "a", &[("content-type", "a\u{7f}")], "2"),
        ("PUT", "b", none, ""),
        ("GET", "b", none, ""),
        ("GET", "writes", none, ""),
        ("GET", &"x".repeat(513), none, ""),
        ("PUT", &"x".repeat(513), none, "1"),
    ];
    for role in [Role::Node, Role::Keys, Role::Viewer, Role::Operator, Role::Admin] {
        let caller = Arc::new(Principal { role, ..ana() });
        for (method, key, headers, body) in requests {
            let request = || {
                let request = Request::builder().method(*method).uri(format!("/v1/kv/{key}"));
                let request = request.header("content-length", body.len());
                let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
                request.body(Body::from(body.to_string()))
            };
            let (Ok(short), Ok(mut long)) = (request(), request()) else { continue };
            assert!(swift.route(&short).is_some(), "{method} {key}");
            long.extensions_mut().insert(caller.clone());
            let long = told(capability.router.clone().oneshot(long).await.unwrap()).await;
            let short = told(swift.answer(caller.clone(), short).await).await;
            assert_eq!(short, long, "{} {method} {key} {headers:?}", role.as_str());
        }
    }
}
