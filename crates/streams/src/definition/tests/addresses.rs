use super::{FINE, broken, graph};
use crate::graph::{Address, From, Secret, To};

#[test]
fn other_brokers_and_secrets_are_named_and_never_written_down() {
    let text = FINE
        .replace(
            "{ topic: grid/+/reading }",
            "{ topic: grid/+/reading, url: 'mqtts://grid@broker.example.org:8883', password: { env: GRID_PASSWORD } }",
        )
        .replace(
            "stdout: {}",
            "amqp: { key: late, url: 'amqp://broker.example.org/grid', user: us, password: { file: /run/secrets/amqp } }",
        )
        .replace(
            "flow: { name: grid-alarm }",
            "webhook: { url: 'https://example.org/hook', header: Authorization, secret: { env: HOOK_TOKEN } }\n    host: edge-1",
        );
    let graph = graph(&text);
    let From::Mqtt { at: Some(at), .. } = &graph.sources[0].from else { panic!("{:?}", graph.sources[0].from) };
    let address = |url: &str, user: &str, password| Address {
        url: url.into(),
        user: Some(user.into()),
        password: Some(password),
    };
    assert_eq!(*at, address("mqtts://broker.example.org:8883", "grid", Secret::Env("GRID_PASSWORD".into())));
    let To::Amqp { at: Some(at), .. } = &graph.sinks[1].to else { panic!("{:?}", graph.sinks[1].to) };
    assert_eq!(*at, address("amqp://broker.example.org/grid", "us", Secret::File("/run/secrets/amqp".into())));
    let To::Webhook { header, .. } = &graph.sinks[0].to else { panic!("{:?}", graph.sinks[0].to) };
    assert_eq!(*header, Some(("Authorization".into(), Secret::Env("HOOK_TOKEN".into()))));
    assert_eq!(graph.sinks[0].host.as_deref(), Some("edge-1"));
    let shown = graph.text();
    assert!(shown.contains("mqtt grid/+/reading at mqtts://broker.example.org:8883"), "{shown}");
}

#[test]
fn addresses_that_cannot_be_are_told_and_no_password_is_repeated() {
    let mqtt = |by: &str| broken("topic: grid/+/reading }", &format!("topic: grid/+/reading, {by} }}"));
    for (by, fault) in [
        (
            "url: 'mqtt://me:hunter2@host'",
            "6:41: a password stands in the url, where everybody sees it; take it out, and write password: { env: NAME } or password: { file: PATH }",
        ),
        (
            "url: 'tcp://host'",
            "6:41: an address begins with mqtts:// or mqtt://; write it like mqtts://broker.example.org",
        ),
        ("url: 'mqtt://'", "6:41: \"mqtt://\" names no host; write it like mqtts://broker.example.org"),
        (
            "url: 'mqtt://host?password=hunter2'",
            "6:41: an address has nothing behind ? or #; write it like mqtts://broker.example.org",
        ),
        (
            "url: mqtt://host, user: me, password: hunter2",
            "6:74: a secret stands in the definition, where everybody sees it; write { env: NAME } or { file: PATH }: where it is found on the host that uses it",
        ),
        (
            "user: me",
            "6:42: user is for another broker than the installation's own; write url: mqtts://host, or leave user out",
        ),
        ("url: mqtt://host, password: { env: P }", "6:64: a password without a user; write user: and who it is of"),
    ] {
        let faults = mqtt(by);
        assert!(faults.iter().any(|one| one == fault), "{by} gave\n{}\nand not\n{fault}", faults.join("\n"));
        assert!(faults.iter().all(|one| !one.contains("hunter2")), "{faults:?}");
    }
    let hook = |url: &str| broken("flow: { name: grid-alarm }", &format!("webhook: {{ url: '{url}' }}"));
    assert!(hook("https://me:hunter2@example.org")[0].contains("a user stands in the url"));
    assert!(hook("ftp://example.org")[0].contains("is no address of a web server"));
}
