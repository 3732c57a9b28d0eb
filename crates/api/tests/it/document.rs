//! The OpenAPI document tells the truth: what it lists is routed, and what is routed is listed. Routes and document come
//! from one definition, so these tests guard the definition's use: a route added past it, or a merge that drops one.

use std::collections::BTreeSet;

use mutirao_core::auth::Role;
use serde_json::Value;

use crate::server::Server;

const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "head"];

async fn document(server: &Server) -> Value {
    let answer = server.ask("GET", "/v1/openapi.json").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
    answer.json().await.unwrap()
}

fn listed(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().filter(|key| METHODS.contains(&key.as_str()));
        methods.map(|method| (path.clone(), method.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

fn with_values(path: &str) -> String {
    path.replace("{id}", "j0000000").replace("{key}", "logs/x")
}

#[tokio::test]
async fn every_listed_route_answers_and_no_unlisted_method_does() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let listed = listed(&document(&server).await);
    assert!(listed.len() >= 16, "{listed:?}");
    for path in listed.iter().map(|(path, _)| path).collect::<BTreeSet<_>>() {
        assert!(!path.contains('*'), "{path}");
        for method in METHODS {
            if path == "/v1/slow" && matches!(method, "get" | "head") {
                continue;
            }
            let request = server.ask(&method.to_uppercase(), &with_values(path)).bearer_auth(&admin);
            let answer = request.send().await.unwrap();
            let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            let status = answer.status().as_u16();
            // The body of an event stream never ends.
            let text =
                if kind.as_deref() == Some("text/event-stream") { String::new() } else { answer.text().await.unwrap() };
            let routed = status != 405 && !text.contains("there is nothing at");
            let is_listed = listed.contains(&(path.clone(), method.to_owned()));
            // HTTP gives every GET a HEAD.
            let expected = is_listed || (method == "head" && listed.contains(&(path.clone(), "get".into())));
            assert_eq!(routed, expected, "{method} {path}: {status} {text}");
        }
    }
}

#[tokio::test]
async fn every_routed_path_is_listed() {
    let server = Server::start().await;
    let listed: BTreeSet<String> = listed(&document(&server).await).into_iter().map(|(path, _)| path).collect();
    let routed = routed_paths(&format!("{:?}", server.api.router()));
    assert_eq!(routed, listed);
}

/// The router does not tell its paths but for debugging: `RouteId(3): "/v1/tokens"`. Its fallback is kept as two more,
/// `/` (which another test finds to answer 404) and a private one.
fn routed_paths(debug: &str) -> BTreeSet<String> {
    let quoted = debug.split("RouteId(").skip(1).filter_map(|rest| rest.split_once(')')?.1.strip_prefix(": \""));
    let paths = quoted.filter_map(|rest| Some(rest.split_once('"')?.0));
    paths.filter(|path| *path != "/" && !path.contains("__private")).map(|path| path.replace("{*", "{")).collect()
}

#[tokio::test]
async fn every_operation_says_how_it_is_refused_and_how_to_come_in() {
    let server = Server::start().await;
    let document = document(&server).await;
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
    for (path, method) in listed(&document) {
        let operation = &document["paths"][&path][&method];
        let refusal = &operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(refusal, "#/components/schemas/Problem", "{method} {path}");
    }
    let schemes = document["components"]["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["signature", "token"]);
    assert_eq!(document["security"].as_array().unwrap().len(), 2);
    let open = &document["paths"]["/healthz"]["get"]["security"];
    assert_eq!(open, &serde_json::json!([{}]));
}

#[tokio::test]
async fn every_reference_in_the_document_leads_somewhere() {
    let server = Server::start().await;
    let document = document(&server).await;
    let mut to_visit = vec![&document];
    let mut seen = 0;
    while let Some(value) = to_visit.pop() {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
            seen += 1;
        }
        match value {
            Value::Object(object) => to_visit.extend(object.values()),
            Value::Array(items) => to_visit.extend(items),
            _ => {}
        }
    }
    assert!(seen > 10);
}
