//! Everything over TLS: what works without being told, what others must be told, and what is refused.

use std::process::Command;

use mutirao_testkit::Installation;
use mutirao_testkit::certificates::{Authority, Good, Pair};

use crate::said::{Said, mutirao, run};

fn setup(pair: &Pair) -> mutirao_testkit::installation::Setup {
    let text = |path: &std::path::Path| path.display().to_string();
    Installation::setup().set("tls.cert", &text(&pair.cert)).set("tls.key", &text(&pair.key))
}

/// As from another machine: no data folder, only what is set.
fn from_afar(up: &Installation, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = mutirao(args);
    command.env("MUTIRAO_DATA", "/nonexistent").env("MUTIRAO_URL", up.url()).env("MUTIRAO_TOKEN", up.token());
    command.envs(env.iter().copied());
    command
}

#[track_caller]
fn refused(said: &Said, code: i32, parts: &[&str]) {
    assert_eq!((said.code, said.err.lines().count()), (Some(code), 1), "{said:?}");
    for part in parts {
        assert!(said.err.contains(part), "no \"{part}\" in {said:?}");
    }
}

#[test]
fn commands_and_workers_of_the_same_machine_need_not_be_told_of_the_certificate() {
    let authority = Authority::new();
    // Not even its name is the address that they use.
    let mut up = setup(&authority.issue(&["lab.example"], Good::ForLong)).start();
    assert!(up.url().starts_with("https://127.0.0.1:"), "{}", up.url());
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--", "echo", "hello"])).out, "hello\n");
    let doctor = Said::from(up.cli(&["doctor"]));
    assert!(doctor.code == Some(0) && doctor.out.contains("days left"), "{doctor:?}");

    // A worker that outlives its manager believes the next one's certificate too.
    let job = up.ok(&["submit", "--", "sh", "-c", "sleep 3; echo survived"]);
    mutirao_testkit::wait::until("the task to run", crate::said::SOON, || {
        up.ok(&["job", "show", job.trim()]).contains("running")
    });
    up.restart();
    let waited = Said::from(up.cli(&["job", "wait", job.trim()]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(up.ok(&["job", "logs", job.trim(), "--task", "1"]), "survived\n");
}

#[test]
fn those_elsewhere_believe_whom_they_are_told_to_and_nobody_else() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let up = setup(&ours.issue(&["127.0.0.1"], Good::ForLong)).workers(0).start();
    let (ca, wrong) = (ours.ca().display().to_string(), theirs.ca().display().to_string());
    let list = |env: &[(&str, &str)]| run(from_afar(&up, &["job", "list"], env));
    let said = list(&[("MUTIRAO_TLS_CA", &ca)]);
    assert!(said.code == Some(0) && said.out.contains("no jobs"), "{said:?}");
    refused(&list(&[]), 5, &["not trusted", "no authority that we trust", "MUTIRAO_TLS_CA"]);
    refused(&list(&[("MUTIRAO_TLS_CA", &wrong)]), 5, &["not trusted", "tls.ca"]);
    refused(&list(&[("MUTIRAO_TLS_CA", "/no/such/ca")]), 2, &["tls.ca", "there is no file /no/such/ca"]);
    refused(
        &list(&[("MUTIRAO_TLS_CA", &ca), ("MUTIRAO_URL", &up.url().replace("127.0.0.1", "localhost"))]),
        5,
        &["it is not for localhost, but for 127.0.0.1"],
    );
    let plain = up.url().replace("https", "http");
    refused(&list(&[("MUTIRAO_URL", &plain)]), 1, &["speaks https only", "write https://"]);

    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("w").display().to_string();
    let token = up.ok(&["worker", "invite"]);
    let worker = |url: &str, ca: &str| {
        let mut command = from_afar(&up, &["role", "worker", "--url", url, "--dir", &dir], &[]);
        command.env("MUTIRAO_TLS_CA", ca).env("MUTIRAO_ENROL_TOKEN", token.trim()).env("MUTIRAO_LOG", "error");
        command
    };
    refused(&run(worker(&up.url(), &wrong)), 5, &["not trusted", "MUTIRAO_TLS_CA"]);
    let mut child = worker(&up.url(), &ca).spawn().unwrap();
    let done = Said::from(up.cli(&["submit", "--wait", "--", "echo", "from afar"]));
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(done.out, "from afar\n", "{done:?}");
    // It is enrolled now, so that it is the link that is refused.
    refused(&run(worker(&up.url(), &wrong)), 5, &["not trusted", "no authority that we trust"]);
    refused(&run(worker(&plain, &ca)), 5, &["speaks https only"]);
}

#[test]
fn https_to_a_plain_port_says_so() {
    let up = Installation::setup().workers(0).start();
    let secure = up.url().replace("http", "https");
    refused(
        &run(from_afar(&up, &["job", "list"], &[("MUTIRAO_URL", &secure)])),
        5,
        &["does not speak TLS", "write http://"],
    );
}

#[test]
fn an_expired_certificate_is_warned_about_and_serves_its_own_machine_only() {
    let authority = Authority::new();
    let up = setup(&authority.issue(&["127.0.0.1"], Good::NoLonger)).start();
    assert!(up.stderr().contains("expired on 2002-03-04"), "{}", up.stderr());
    assert_eq!(Said::from(up.cli(&["submit", "--wait", "--", "echo", "hello"])).out, "hello\n");
    let doctor = Said::from(up.cli(&["doctor"]));
    assert!(doctor.code == Some(1) && doctor.out.contains("the certificate expired on 2002-03-04"), "{doctor:?}");
    let ca = authority.ca().display().to_string();
    refused(&run(from_afar(&up, &["job", "list"], &[("MUTIRAO_TLS_CA", &ca)])), 5, &["it expired on 2002-03-04"]);
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start_in_one_line() {
    let authority = Authority::new();
    let (pair, other) = (authority.issue(&["h"], Good::ForLong), authority.issue(&["h"], Good::ForLong));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let path = |path: &std::path::Path| path.display().to_string();
    let up = |sets: &[(&str, &str)]| {
        let mut args = vec!["up".to_owned(), "--listen".into(), "127.0.0.1:0".into(), "--data".into(), data.clone()];
        args.extend(sets.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
        run(mutirao(&args.iter().map(String::as_str).collect::<Vec<_>>()))
    };
    let (cert, key) = (path(&pair.cert), path(&pair.key));
    refused(&up(&[("tls.cert", &cert)]), 2, &["tls.key is not"]);
    refused(&up(&[("tls.cert", &cert), ("tls.key", "/no/key")]), 2, &["there is no file /no/key"]);
    refused(&up(&[("tls.cert", &key), ("tls.key", &key)]), 2, &["holds no certificate in PEM"]);
    refused(&up(&[("tls.cert", &cert), ("tls.key", &cert)]), 2, &["holds no private key in PEM"]);
    refused(&up(&[("tls.cert", &cert), ("tls.key", &path(&other.key))]), 2, &["does not belong to the certificate"]);
    assert!(!folder.path().join("data").exists(), "nothing was made for a set-up that was refused");
}
