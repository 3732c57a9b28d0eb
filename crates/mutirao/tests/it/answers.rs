//! What the commands that look and change say.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use mutirao_testkit::{Installation, wait};

use crate::said::{SOON, Said, mutirao, run};

#[test]
fn jobs_and_tasks_can_be_looked_at() {
    let up = Installation::start();
    let id = up.ok(&[
        "submit",
        "--name",
        "look",
        "--label",
        "k=v",
        "--array",
        "1-3",
        "--",
        "sh",
        "-c",
        "echo $MUTIRAO_TASK_INDEX",
    ]);
    let id = id.trim();
    assert_eq!(Said::from(up.cli(&["job", "wait", id])).code, Some(0));
    let list = up.ok(&["job", "list"]);
    assert!(
        list.lines().nth(1).is_some_and(|line| line.starts_with(id) && line.contains("look") && line.contains("3/3")),
        "{list}"
    );
    let shown = up.ok(&["job", "show", id]);
    assert!(shown.contains("3: 3 ok") && shown.contains("k=v"), "{shown}");
    assert!(shown.contains("sh -c 'echo $MUTIRAO_TASK_INDEX'") && shown.contains("cpus 1"), "{shown}");
    assert_eq!(up.ok(&["task", "list", id, "--state", "ok"]).lines().count(), 4);
    assert!(up.ok(&["task", "show", &format!("{id}.2")]).contains("state     ok"));
    assert_eq!(up.ok(&["job", "logs", id, "--task", "2"]), "2\n");
    assert_eq!(up.ok(&["job", "logs", id, "-f", "--task", "3", "--stream", "stdout"]), "3\n");
    let page: serde_json::Value =
        serde_json::from_str(&up.ok(&["--json", "task", "list", id, "--limit", "2"])).unwrap();
    assert_eq!((page["items"].as_array().unwrap().len(), page["next"].is_string()), (2, true));
    assert!(up.ok(&["worker", "list"]).lines().count() == 3);
}

#[test]
fn jobs_are_found_by_name_and_label() {
    let up = Installation::start();
    let mine = up.ok(&["submit", "--name", "night run", "--label", "team=x", "--", "true"]);
    let other = up.ok(&["submit", "--name", "day", "--label", "team=y", "--", "true"]);
    let (mine, other) = (mine.trim(), other.trim());
    let all = up.ok(&["job", "list"]);
    assert!(all.lines().next().is_some_and(|heading| heading.ends_with("LABELS")), "{all}");
    for filter in [&["--label", "team=x"][..], &["--name", "night run"], &["--name", "night run", "--label", "team=x"]]
    {
        let found = up.ok(&[&["job", "list"], filter].concat());
        assert!(found.contains(mine) && !found.contains(other), "{filter:?}: {found}");
    }
    assert!(up.ok(&["job", "list", "--name", "night run", "--label", "team=y"]).contains("no such jobs"));
}

#[test]
fn a_job_of_many_tasks_is_read_in_order_although_the_api_is_asked_too_often() {
    let up = Installation::setup().set("api.rate", "150").set("api.burst", "150").start();
    // Every third is silent, and the first ones are the last to speak.
    let script = "i=$MUTIRAO_TASK_INDEX; test $((i % 3)) = 0 || { echo out $i; echo err $i >&2; }";
    let job = up.ok(&["submit", "--cpus", "0", "--array", "1-200", "--", "sh", "-c", script]);
    let waited = Said::from(up.cli(&["job", "wait", job.trim()]));
    assert_eq!(waited.code, Some(0), "{waited:?}");
    let logs = Said::from(up.cli(&["job", "logs", job.trim()]));
    let expected = |word: &str| (1..=200).filter(|i| i % 3 != 0).map(|i| format!("{word} {i}\n")).collect::<String>();
    assert_eq!((logs.code, logs.out, logs.err), (Some(0), expected("out"), expected("err")));
}

#[test]
fn programs_get_a_line_for_each_piece_of_output() {
    let up = Installation::start();
    let job = up.ok(&["submit", "--wait", "--array", "4-5", "--", "sh", "-c", "printf 'é\\377'; echo no >&2"]);
    let logs = up.ok(&["--json", "job", "logs", job.trim()]);
    let lines: Vec<serde_json::Value> = logs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let piece = |index: u32, stream: &str, text: &str| serde_json::json!({"task": format!("{}.{index}", job.trim()), "stream": stream, "text": text});
    let of = |index| [piece(index, "stdout", "é\u{fffd}"), piece(index, "stderr", "no\n")];
    assert_eq!(lines, [of(4), of(5)].concat());
}

#[test]
fn following_ends_with_its_reader_although_nothing_more_is_written() {
    let up = Installation::start();
    let job = up.ok(&["submit", "--", "sh", "-c", "echo one; echo two >&2; sleep 300"]);
    let job = job.trim();
    let follow = |args: &[&str]| {
        let mut command = up.command(&[&["job", "logs", "-f", job], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut out = follow(&[]);
    let mut err = follow(&["--stream", "stderr"]);
    let mut lines = [String::new(), String::new()];
    BufReader::new(out.stdout.take().unwrap()).read_line(&mut lines[0]).unwrap();
    BufReader::new(err.stderr.take().unwrap()).read_line(&mut lines[1]).unwrap();
    assert_eq!(lines, ["one\n", "two\n"]);
    for child in [&mut out, &mut err] {
        wait::until("the command to end with its reader", SOON, || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    up.ok(&["job", "cancel", job]);
}

#[test]
fn a_token_may_do_what_its_role_may_until_it_is_revoked() {
    let up = Installation::start();
    let created: serde_json::Value =
        serde_json::from_str(&up.ok(&["--json", "token", "create", "--role", "viewer", "--name", "bob"])).unwrap();
    let (id, secret) = (created["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    let as_bob = |args: &[&str]| {
        run({
            let mut command = up.command(args);
            command.env("MUTIRAO_TOKEN", secret);
            command
        })
    };
    assert_eq!(as_bob(&["job", "list"]).code, Some(0));
    let refused = as_bob(&["submit", "--", "true"]);
    assert!(refused.code == Some(4) && refused.err.contains("operator"), "{refused:?}");
    let list = up.ok(&["token", "list"]);
    assert!(list.contains("bob") && !list.contains(secret), "{list}");
    up.ok(&["token", "revoke", id]);
    assert_eq!(as_bob(&["job", "list"]).code, Some(4));
}

#[test]
fn tokens_of_one_name_are_one_owner() {
    let up = Installation::start();
    let owner_with_a_new_token = || {
        let args = ["--json", "token", "create", "--role", "operator", "--name", "ana"];
        let created: serde_json::Value = serde_json::from_str(&up.ok(&args)).unwrap();
        let submitted = run({
            let mut command = up.command(&["submit", "--", "true"]);
            command.env("MUTIRAO_TOKEN", created["secret"].as_str().unwrap());
            command
        });
        let job: serde_json::Value =
            serde_json::from_str(&up.ok(&["--json", "job", "show", submitted.out.trim()])).unwrap();
        job["owner"].as_str().unwrap().to_owned()
    };
    assert_eq!([owner_with_a_new_token(), owner_with_a_new_token()], ["ana", "ana"]);
}

#[test]
fn a_manager_is_shown_where_it_is_reached_and_answers_to_that_name() {
    let up = Installation::setup().env("MUTIRAO_API_URL", "http://one.example.org:7070/").start();
    let shards = up.ok(&["shard", "list"]);
    assert!(shards.contains("http://one.example.org:7070") && !shards.contains(&up.url()), "{shards}");
    let asked = |host: &str| {
        let mut stream = std::net::TcpStream::connect(up.url().strip_prefix("http://").unwrap()).unwrap();
        write!(stream, "GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap().to_owned()
    };
    assert!(asked("one.example.org:7070").contains("200") && asked("two.example.org").contains("421"));
}

#[test]
fn a_reader_that_goes_away_is_no_matter() {
    for args in [&["config", "list"][..], &["completions", "zsh"], &["--help"]] {
        let mut child = mutirao(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let said = Said::from(child.wait_with_output().unwrap());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
    }
    // More than a pipe holds, so that the writer is surely in the middle of it.
    let up = Installation::start();
    let job = up.ok(&["submit", "--wait", "--json", "--", "seq", "1", "300000"]);
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let mut command = up.command(&["job", "logs", job["id"].as_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((first.as_str(), said.code, said.err.as_str()), ("1\n", Some(0), ""));
}

#[test]
fn doctor_is_content_with_a_sound_installation_and_names_what_ails_another() {
    let mut up = Installation::start();
    let well = Said::from(up.cli(&["doctor"]));
    assert!(well.code == Some(0) && !well.out.contains("fail"), "{well:?}");
    assert!(well.out.lines().any(|line| line.contains("workers") && line.contains('2')), "{well:?}");
    up.terminate();
    let ill = Said::from(up.cli(&["--json", "doctor"]));
    let findings: Vec<serde_json::Value> = serde_json::from_str(&ill.out).unwrap();
    let failed: Vec<&serde_json::Value> = findings.iter().filter(|finding| finding["mark"] == "fail").collect();
    assert_eq!((ill.code, failed.len()), (Some(1), 1), "{ill:?}");
    assert!(failed[0]["remedy"].as_str().is_some_and(|remedy| remedy.contains("mutirao up")), "{ill:?}");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(mutirao(&["completions", shell]));
        assert!(said.code == Some(0) && said.out.contains("submit"), "{shell}");
    }
}
