//! A user of RabbitMQ that may not do everything: told at the start, by `doctor`, and at run time.

use mutirao_testkit::{Installation, wait};

use super::{Vhost, up_with};
use crate::said::{SOON, Said, mutirao, refused, run};

const OURS: &str = r"^mutirao\\..*";
const WRITE: &str = r"^(mutirao\\..*|amq\\.default)$";

impl Vhost {
    fn permit_apart(&self, user: &str, configure: &str, write: &str, read: &str) {
        let may = format!(r#"{{"configure":"{configure}","write":"{write}","read":"{read}"}}"#);
        self.put(&format!("/api/permissions/{}/{user}", self.name), &may);
    }

    /// Whoever is connected comes again, and is asked for its permissions anew.
    fn cut(&self, user: &str) -> usize {
        let connections = self.ask("GET /api/connections?columns=name,user", "").text();
        let connections: Vec<serde_json::Value> = serde_json::from_str(&connections).unwrap_or_default();
        let names = connections.iter().filter(|one| one["user"] == user).filter_map(|one| one["name"].as_str());
        let named = |name: &str| name.replace(' ', "%20").replace('>', "%3E");
        names.map(|name| self.ask(&format!("DELETE /api/connections/{}", named(name)), "")).count()
    }
}

#[test]
fn a_lacking_permission_is_told_at_the_start_and_by_doctor_with_the_command_that_grants_it() {
    let Some(vhost) = Vhost::new() else { return };
    let user = format!("p{}", vhost.name);
    vhost.put(&format!("/api/users/{user}"), r#"{"password":"s3cret","tags":"administrator"}"#);
    let url = vhost.url_of(&user, "s3cret");
    for (configure, write, read, lack) in [
        (OURS, OURS, OURS, "no write permission on exchange 'amq.default'"),
        (OURS, WRITE, "^$", "no read permission on queue 'mutirao.…'"),
        ("^$", WRITE, OURS, "no configure permission on"),
    ] {
        vhost.permit_apart(&user, configure, write, read);
        let remedy = format!(
            r"rabbitmqctl set_permissions -p {} {user} '^mutirao\..*' '^(mutirao\..*|amq\.(default|topic))$' '^(mutirao\..*|amq\.topic)$'",
            vhost.name
        );
        refused(&up_with(&url), 1, &[lack, &remedy]);
        let dir = tempfile::tempdir().unwrap();
        let mut doctor = mutirao(&["doctor", "--data", &dir.path().display().to_string()]);
        doctor.env("MUTIRAO_BROKER", &url).env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management);
        let found = run(doctor);
        assert!(found.code == Some(1) && found.out.contains(lack) && found.out.contains(&remedy), "{found:?}");
    }
    vhost.ask(&format!("DELETE /api/users/{user}"), "");
}

#[test]
fn a_permission_that_is_lost_at_run_time_is_one_line_and_the_queue_explains_it() {
    let Some(vhost) = Vhost::new() else { return };
    let user = format!("p{}", vhost.name);
    vhost.put(&format!("/api/users/{user}"), r#"{"password":"s3cret","tags":"administrator"}"#);
    vhost.permit_apart(&user, OURS, WRITE, OURS);
    let up = Installation::setup()
        .workers(1)
        .env("MUTIRAO_BROKER", &vhost.url_of(&user, "s3cret"))
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "before"]), "before\n");
    vhost.permit_apart(&user, OURS, OURS, OURS);
    wait::until("its connections to be seen, and cut", SOON, || vhost.cut(&user) > 0);
    let job = up.ok(&["submit", "--", "true"]);
    let lack = "has no write permission on exchange 'amq.default'; run rabbitmqctl set_permissions";
    wait::until("the queue to explain it", SOON, || up.ok(&["queue", "explain", "default"]).contains(lack));
    // Some more tries, of which the log must not hear.
    wait::holds_within(std::time::Duration::from_secs(5), || false);
    assert_eq!(up.stderr().matches(lack).count(), 1, "{}", up.stderr());
    vhost.permit_apart(&user, OURS, WRITE, OURS);
    wait::until("the job to end", SOON, || up.ok(&["job", "show", job.trim()]).contains("1 ok"));
    let explained = Said::from(up.cli(&["queue", "explain", "default"]));
    assert!(!explained.out.contains("permission"), "{explained:?}");
    vhost.ask(&format!("DELETE /api/users/{user}"), "");
}

#[test]
fn whoever_cannot_be_heard_for_want_of_a_permission_is_not_given_up() {
    let Some(vhost) = Vhost::new() else { return };
    let user = format!("p{}", vhost.name);
    vhost.put(&format!("/api/users/{user}"), r#"{"password":"s3cret","tags":"administrator"}"#);
    vhost.permit_apart(&user, OURS, WRITE, OURS);
    let up = Installation::setup()
        .workers(1)
        .set("jobs.lease", "3s")
        .env("MUTIRAO_BROKER", &vhost.url_of(&user, "s3cret"))
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    let job = up.ok(&["submit", "--crash-limit", "1", "--", "sleep", "10"]);
    let shown = || up.ok(&["job", "show", job.trim()]);
    wait::until("it to run", SOON, || shown().contains("1 running"));
    vhost.permit_apart(&user, OURS, WRITE, "^$");
    wait::until("its connections to be seen, and cut", SOON, || vhost.cut(&user) > 0);
    wait::until("it to say that it hears nobody", SOON, || {
        up.request("GET /readyz", b"").text().contains("reports of workers cannot be heard")
    });
    // Several leases long, and past the end of the task.
    wait::holds_within(std::time::Duration::from_secs(15), || false);
    assert!(!shown().contains("dead") && !shown().contains("lost"), "{}", shown());
    vhost.permit_apart(&user, OURS, WRITE, OURS);
    wait::until("the job to end", SOON, || shown().contains("1 ok"));
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "after"]), "after\n");
    vhost.ask(&format!("DELETE /api/users/{user}"), "");
}
