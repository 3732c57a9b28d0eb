//! Who may do what: every route against every kind of caller.

use mutirao_core::auth::Role;

use crate::server::{Server, problem};

/// The route, and the least role it takes.
const ROUTES: [(&str, &str, Role); 11] = [
    ("GET", "/metrics", Role::Viewer),
    ("POST", "/v1/tokens", Role::Admin),
    ("GET", "/v1/tokens", Role::Admin),
    ("DELETE", "/v1/tokens/000000000000", Role::Admin),
    ("POST", "/v1/workers/enrolments", Role::Admin),
    ("PUT", "/v1/blobs/logs/x/y", Role::Node),
    ("GET", "/v1/blobs/logs/x/y", Role::Node),
    ("GET", "/v1/link", Role::Node),
    ("POST", "/v1/jobs", Role::Operator),
    ("GET", "/v1/jobs/j0000000", Role::Viewer),
    ("GET", "/v1/forgetful", Role::Viewer),
];

#[tokio::test]
async fn each_route_takes_the_roles_it_should_and_no_other() {
    let server = Server::start().await;
    let worker = server.worker("default").await;
    for (method, path, least) in ROUTES {
        let body = if method == "POST" { "{}" } else { "" };
        for role in [Role::Viewer, Role::Operator, Role::Admin, Role::Node] {
            let header = match role {
                Role::Node => worker.authorize(method, path, body.as_bytes(), server.clock.now()),
                role => format!("Bearer {}", server.token(role).await),
            };
            let request = server.ask(method, path).header("authorization", header);
            let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap();
            // Forgetful handlers do not look at the role; that they ask for a token at all is the gate's doing.
            let may = role.may(least) || path == "/v1/forgetful";
            let refused_for_role = status == 403 && text.contains("this needs the role");
            assert_eq!(!refused_for_role, may, "{method} {path} as {role:?}: {status} {text}");
            assert!(status != 401 && status < 500, "{method} {path} as {role:?}: {status} {text}");
        }
    }
}

/// What a manager's own actions have opens no route but those of keys, and is known to nobody else.
#[tokio::test]
async fn what_a_process_lends_itself_opens_nothing_but_keys_and_only_here() {
    let server = Server::start().await;
    let token = server.api.auth().lend("actions", Role::Keys);
    let ask = async |at: &Server, method: &str, path: &str| {
        let request = at.ask(method, path).bearer_auth(&token).header("content-type", "application/json");
        request.body(if method == "POST" { "{}" } else { "" }).send().await.unwrap()
    };
    for (method, path, _) in ROUTES.iter().filter(|(_, path, _)| *path != "/v1/forgetful") {
        let text = problem(ask(&server, method, path).await, 403).await.to_string();
        assert!(text.contains("yours is keys"), "{method} {path}: {text}");
    }
    assert_eq!(ask(&server, "GET", "/v1/keys").await.status(), 200, "the route of a capability that has keys");
    problem(ask(&server.beside().await, "GET", "/v1/keys").await, 401).await;
    let spec = mutirao_core::auth::TokenSpec { name: "x".into(), role: Role::Keys, expires_in: None };
    let line = server.api.auth().create_token(&spec, "test").await.unwrap_err().line();
    assert!(line.contains("not for tokens"), "{line}");
}

#[tokio::test]
async fn no_closed_route_answers_without_a_good_token() {
    let server = Server::start().await;
    let stranger = format!("Bearer mut_{}_{}", "0".repeat(12), "0".repeat(64));
    for (method, path, _) in ROUTES {
        let answer = server.ask(method, path).send().await.unwrap();
        assert_eq!(answer.headers().get_all("www-authenticate").iter().count(), 2, "{method} {path}");
        problem(answer, 401).await;
    }
    for header in [stranger.as_str(), "Bearer rubbish", "Basic dTpw", "Bearer", ""] {
        let answer = server.ask("GET", "/v1/tokens").header("authorization", header).send().await.unwrap();
        problem(answer, 401).await;
    }
}

#[tokio::test]
async fn open_routes_answer_anybody() {
    let server = Server::start().await;
    for path in ["/healthz", "/readyz", "/v1/openapi.json"] {
        let request = server.ask("GET", path).header("authorization", "Bearer rubbish");
        assert_eq!(request.send().await.unwrap().status(), 200, "{path}");
    }
}

#[tokio::test]
async fn metrics_count_requests_by_route() {
    let server = Server::start().await;
    server.ask("GET", "/v1/openapi.json").send().await.unwrap();
    let token = server.token(Role::Viewer).await;
    let text = server.ask("GET", "/metrics").bearer_auth(token).send().await.unwrap().text().await.unwrap();
    let line = r#"mutirao_http_requests_total{method="GET",route="/v1/openapi.json",status="200"}"#;
    assert!(text.contains(line), "{text}");
}
