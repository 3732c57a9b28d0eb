//! Rubbish that somebody puts in a queue of RabbitMQ: it is found, told, counted, and removed.

use mutirao_testkit::{Installation, wait};

use super::Vhost;
use crate::said::{SOON, Said};

impl Vhost {
    /// Puts something in a queue that no worker can read.
    fn put_rubbish(&self, queue: &str, text: &str) {
        let message =
            format!(r#"{{"properties":{{}},"routing_key":"{queue}","payload":"{text}","payload_encoding":"string"}}"#);
        let answer = self.ask(&format!("POST /api/exchanges/{}/amq.default/publish", self.name), &message);
        assert!(answer.text().contains("\"routed\":true"), "{}", answer.text());
    }
}

#[test]
fn rubbish_in_a_queue_is_told_by_doctor_and_metrics_and_removed_one_or_all() {
    let Some(vhost) = Vhost::new() else { return };
    let up = Installation::setup()
        .workers(1)
        .env("MUTIRAO_BROKER", &vhost.broker)
        .env("MUTIRAO_BROKER_MANAGEMENT", &vhost.management)
        .start();
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "before"]), "before\n");
    let letters = || -> Vec<serde_json::Value> {
        serde_json::from_str(&up.ok(&["--json", "task", "letters"])).expect("letters in JSON")
    };
    vhost.put_rubbish("mutirao.tasks.default", "rubbish");
    wait::until("the letter", SOON, || letters().len() == 1);
    let letter = letters().remove(0);
    assert_eq!((letter["way"].as_str(), letter["text"].as_str()), (Some("tasks.default"), Some("rubbish")));
    assert!(letter["reason"].as_str().is_some_and(|reason| reason.contains("could not read it")), "{letter}");
    let doctor = Said::from(up.cli(&["doctor"]));
    assert!(doctor.out.contains("1 dead letter is in tasks.default"), "{doctor:?}");
    assert!(doctor.out.contains("mutirao task letters rm ID"), "{doctor:?}");
    wait::until("the gauge", SOON, || {
        let metrics = up.request("GET /metrics", b"").text();
        metrics.lines().any(|line| line == r#"mutirao_dead_letters{way="tasks.default"} 1"#)
    });

    let nobody = Said::from(up.cli(&["task", "letters", "rm", "0123456789ab"]));
    assert!(nobody.code == Some(3) && nobody.err.contains("mutirao task letters"), "{nobody:?}");
    let id = letter["id"].as_str().unwrap_or_default();
    assert_eq!(up.ok(&["task", "letters", "rm", id]).trim(), "1 dead letter is gone");
    assert_eq!(up.ok(&["task", "letters"]).trim(), "no dead letters");
    for text in ["one", "two"] {
        vhost.put_rubbish("mutirao.tasks.default", text);
    }
    wait::until("both letters", SOON, || letters().len() == 2);
    let texts: Vec<_> = letters().iter().map(|letter| letter["text"].clone()).collect();
    assert_eq!(texts, ["one", "two"]);
    assert_eq!(up.ok(&["task", "letters", "rm", "--all"]).trim(), "2 dead letters are gone");
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "after"]), "after\n", "it blocked nothing");
}
