//! Tokens: made, listed, revoked, expired, and the one of the first start.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mutirao_api::Settings;
use mutirao_core::Timestamp;
use mutirao_core::auth::{Role, TokenCreated, TokenView};
use mutirao_core::clock::ManualClock;
use mutirao_core::job::Page;
use serde_json::json;

use crate::server::{Server, problem};

async fn works(server: &Server, token: &str) -> bool {
    let status = server.ask("GET", "/v1/forgetful").bearer_auth(token).send().await.unwrap().status();
    assert!(status == 200 || status == 401, "{status}");
    status == 200
}

#[tokio::test]
async fn a_revoked_token_stops_at_once() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let request = server.ask("POST", "/v1/tokens").bearer_auth(&admin);
    let answer = request.json(&json!({"name": "ci", "role": "operator"})).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let made: TokenCreated = answer.json().await.unwrap();
    assert!(works(&server, &made.secret).await && works(&server, &made.secret).await);

    let path = format!("/v1/tokens/{}", made.token.id);
    for _ in 0..2 {
        assert_eq!(server.ask("DELETE", &path).bearer_auth(&admin).send().await.unwrap().status(), 204);
        assert!(!works(&server, &made.secret).await);
    }
    let nobody = server.ask("DELETE", "/v1/tokens/nobody").bearer_auth(&admin).send().await.unwrap();
    problem(nobody, 404).await;
    assert!(works(&server, &admin).await);
}

#[tokio::test]
async fn a_token_expires_even_while_it_is_remembered() {
    let clock = ManualClock::starting_at(Timestamp(1_000_000));
    let server = Server::start_with(Settings::default(), clock.clone()).await;
    let admin = server.token(Role::Admin).await;
    let request = server.ask("POST", "/v1/tokens").bearer_auth(&admin);
    let spec = json!({"name": "short", "role": "viewer", "expires_in": "5s"});
    let made: TokenCreated = request.json(&spec).send().await.unwrap().json().await.unwrap();
    assert_eq!(made.token.expires_at, Some(Timestamp(1_005_000)));
    assert!(works(&server, &made.secret).await);
    clock.advance(Duration::from_secs(5));
    assert!(!works(&server, &made.secret).await);
}

#[tokio::test]
async fn tokens_are_listed_in_pages_without_their_secrets() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    for _ in 0..4 {
        server.token(Role::Viewer).await;
    }
    let (mut seen, mut cursor) = (Vec::<TokenView>::new(), None::<String>);
    for page_number in 1.. {
        let after = cursor.take().map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let request = server.ask("GET", &format!("/v1/tokens?limit=2{after}")).bearer_auth(&admin);
        let text = request.send().await.unwrap().text().await.unwrap();
        assert!(!text.contains("mut_") && !text.contains("secret"));
        let page: Page<TokenView> = serde_json::from_str(&text).unwrap();
        seen.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            assert_eq!(page_number, 3);
            break;
        }
    }
    assert_eq!(seen.len(), 5);
    assert_eq!((seen[0].role, seen[0].last_used_at.is_some()), (Role::Admin, true));
    assert!(seen[1..].iter().all(|token| token.role == Role::Viewer && token.last_used_at.is_none()));
}

#[tokio::test]
async fn a_token_needs_a_name_and_a_role_for_people() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let refusal = async |spec: serde_json::Value| {
        let answer = server.ask("POST", "/v1/tokens").bearer_auth(&admin).json(&spec).send().await.unwrap();
        problem(answer, 422).await.field.unwrap_or_default()
    };
    assert_eq!(refusal(json!({"name": "", "role": "viewer"})).await, "name");
    assert_eq!(refusal(json!({"name": "x", "role": "node"})).await, "role");
    assert_eq!(refusal(json!({"name": "x", "role": "king"})).await, "role");
    assert_eq!(refusal(json!({"name": "x", "role": "viewer", "expires_in": "soon"})).await, "expires_in");
}

#[tokio::test]
async fn every_change_leaves_an_audit_line() {
    let server = Server::start().await;
    let admin = server.token(Role::Admin).await;
    let admin_id = admin.split('_').nth(1).unwrap().to_owned();
    server.ask("DELETE", &format!("/v1/tokens/{admin_id}")).bearer_auth(&admin).send().await.unwrap();
    server.worker("default").await;
    let lines: Vec<(String, String)> = server
        .store
        .read(|sql| {
            let mut lines = sql.prepare("SELECT what, who FROM api_audit ORDER BY seq")?;
            lines.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .await
        .unwrap();
    let what: Vec<&str> = lines.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(what, ["token.create", "token.revoke", "enrolment.create", "worker.enrol"]);
    assert_eq!(lines[1].1, admin_id);
}

#[tokio::test]
async fn no_secret_is_in_the_store() {
    let server = Server::start().await;
    let token = server.token(Role::Admin).await;
    let enrolment = server.api.auth().create_enrolment(&Default::default(), "test").await.unwrap();
    server.store.close().await;
    let bytes = std::fs::read(server.data.path().join("store.db")).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let mut parts = token.splitn(3, '_').skip(1);
    assert!(holds(parts.next().unwrap()), "the id is there, so the file is the right one");
    assert!(!holds(parts.next().unwrap()) && !holds(enrolment.token.trim_start_matches("enr_")));
}

#[tokio::test]
async fn the_first_start_leaves_a_token_that_stays_while_it_is_good() {
    let server = Server::start().await;
    let auth = server.api.auth();
    let path = auth.admin_token(server.data.path()).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(path, server.data.path().join("admin.token"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.ask("GET", "/v1/tokens").bearer_auth(text.trim()).send().await.unwrap().status(), 200);

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    auth.admin_token(server.data.path()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "a good one stays");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "and is closed again");

    for bad in ["rubbish".to_owned(), server.token(Role::Viewer).await, "x".repeat(5_000)] {
        std::fs::write(&path, bad).unwrap();
        auth.admin_token(server.data.path()).await.unwrap();
        let new = std::fs::read_to_string(&path).unwrap();
        assert_eq!(server.ask("GET", "/v1/tokens").bearer_auth(new.trim()).send().await.unwrap().status(), 200);
    }
    let names: Vec<_> =
        std::fs::read_dir(server.data.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".new")), "{names:?}");
}
