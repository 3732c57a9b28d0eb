//! What a command gets and what comes back of it.

use mutirao_core::Verdict;
use mutirao_core::envelope::Handout;

use crate::stage::{Stage, command, exec, shell};

#[tokio::test]
async fn exit_code_output_and_cost_come_back() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(shell("echo out; echo err >&2; exit 3")).await;
    assert_eq!((outcome.verdict, outcome.exit, outcome.signal), (Verdict::Failed, Some(3), None));
    assert_eq!((&outcome.stdout.tail[..], &outcome.stderr.tail[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!((outcome.stdout.bytes, outcome.stdout.truncated, outcome.stdout.in_blobs), (4, false, false));
    assert!(outcome.usage.wall_us > 0 && outcome.usage.wall_us < 30_000_000);
    let busy = stage.outcome(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")).await;
    assert_eq!(busy.verdict, Verdict::Ok);
    assert!(busy.usage.cpu_user_us > 1_000, "{:?}", busy.usage);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_signal_is_told_apart_from_an_exit() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(shell("kill -SEGV $$")).await;
    assert_eq!((outcome.verdict, outcome.exit, outcome.signal), (Verdict::Failed, None, Some(11)));
}

#[tokio::test]
async fn the_environment_is_small_and_says_which_task_this_is() {
    let stage = Stage::set().await;
    let mut spec = command(&["env"]);
    exec(&mut spec).env.insert("COLOUR".into(), "red".into());
    let outcome = stage.outcome(spec).await;
    let text = String::from_utf8(outcome.stdout.tail).unwrap();
    let vars: std::collections::BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
    for unexpected in vars.keys() {
        let known = ["PATH", "HOME", "LANG", "TZ", "COLOUR", "TRACEPARENT"].contains(unexpected);
        assert!(known || unexpected.starts_with("MUTIRAO_"), "{unexpected} got through");
    }
    assert_eq!(vars["COLOUR"], "red");
    assert_eq!(vars["MUTIRAO_TASK_INDEX"], "1");
    assert_eq!(vars["MUTIRAO_ENTRY"], "entry 1");
    assert_eq!(vars["MUTIRAO_ATTEMPT"], "1");
    assert_eq!(vars["MUTIRAO_SESSION"], stage.session.0);
    assert_eq!(vars["MUTIRAO_TASK_ID"], format!("{}.1", vars["MUTIRAO_JOB_ID"]));
    assert!(vars["TRACEPARENT"].starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
}

#[tokio::test]
async fn a_task_has_a_folder_of_its_own_that_goes_with_it() {
    let stage = Stage::set().await;
    let outcome = stage.outcome(shell("ls -A; mkdir -p a/b; echo x > a/b/c; pwd")).await;
    let pwd = String::from_utf8(outcome.stdout.tail).unwrap();
    assert!(pwd.trim().starts_with(stage.dir.path().to_str().unwrap()), "{pwd}");
    assert!(!std::path::Path::new(pwd.trim()).exists());
    let next = stage.outcome(shell("ls -A | wc -l")).await;
    assert_eq!(next.stdout.tail, b"0\n");
    let mut elsewhere = command(&["pwd"]);
    exec(&mut elsewhere).dir = Some("/usr".into());
    assert_eq!(stage.outcome(elsewhere).await.stdout.tail, b"/usr\n");
}

#[tokio::test]
async fn a_megabyte_of_input_arrives_whole_and_unread_input_is_no_fault() {
    let stage = Stage::set().await;
    let mut spec = command(&["wc", "-c"]);
    exec(&mut spec).stdin = Some("x".repeat(1 << 20));
    assert_eq!(stage.outcome(spec).await.stdout.tail, b"1048576\n");
    let mut unread = command(&["true"]);
    exec(&mut unread).stdin = Some("x".repeat(1 << 20));
    assert_eq!(stage.outcome(unread).await.verdict, Verdict::Ok);
    let mut empty = command(&["wc", "-c"]);
    exec(&mut empty).stdin = Some(String::new());
    assert_eq!(stage.outcome(empty).await.stdout.tail, b"0\n");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let stage = Stage::set().await;
    let script = stage.dir.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let plain = stage.dir.path().join("plain");
    std::fs::write(&plain, "hello").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let mut no_dir = command(&["true"]);
    exec(&mut no_dir).dir = Some("/no/such/folder".into());
    for (spec, exit, reason) in [
        (command(&["no-such-program"]), 127, "no such program: no-such-program".to_string()),
        (command(&["/no/such/program"]), 127, "no such program: /no/such/program".to_string()),
        (command(&[plain.to_str().unwrap()]), 126, format!("{} cannot be run: it is not executable", plain.display())),
        (
            command(&[script.to_str().unwrap()]),
            126,
            format!("{} cannot be run: its interpreter is missing", script.display()),
        ),
        (no_dir, 126, "no such folder: /no/such/folder".to_string()),
    ] {
        let outcome = stage.outcome(spec).await;
        assert_eq!((outcome.verdict, outcome.exit), (Verdict::Failed, Some(exit)), "{outcome:?}");
        assert_eq!(outcome.reason, Some(reason));
    }
    assert_eq!(stage.outcome(command(&["a\0b"])).await.verdict, Verdict::Refused);
    assert_eq!(stage.outcome(command(&[])).await.verdict, Verdict::Refused);
}

#[tokio::test]
async fn a_task_can_have_a_command_of_its_own() {
    let stage = Stage::set().await;
    let own = |index, text: &str| Handout {
        t: 0,
        index,
        n: 1,
        entry: None,
        command: Some(vec!["echo".into(), text.into()]),
        ..Handout::default()
    };
    stage.hand_out_as(1, command(&[]), vec![own(1, "one"), own(2, "two")]).await;
    let mut said: Vec<_> = stage.wait_done(2).await.into_iter().map(|done| done.outcome.stdout.tail).collect();
    said.sort();
    assert_eq!(said, [b"one\n", b"two\n"]);
}

fn then(spec: &mut mutirao_core::task::TaskSpec, commands: &[&[&str]]) {
    let words = |command: &&[&str]| command.iter().map(|word| word.to_string()).collect();
    exec(spec).then = commands.iter().map(words).collect();
}

#[tokio::test]
async fn commands_run_in_order_into_one_log_and_the_first_that_fails_ends_the_task_and_is_named() {
    let stage = Stage::set().await;
    let mut all = shell("cat; echo one; echo first > file");
    exec(&mut all).stdin = Some("fed\n".into());
    then(&mut all, &[&["sh", "-c", "echo err >&2; wc -c"], &["cat", "file"]]);
    let outcome = stage.outcome(all).await;
    assert_eq!((outcome.verdict, outcome.reason), (Verdict::Ok, None));
    assert_eq!(outcome.stdout.tail, b"fed\none\n0\nfirst\n", "the same folder, stdin for the first only");
    assert_eq!(outcome.stderr.tail, b"err\n");

    let mut fails = shell("echo one");
    then(&mut fails, &[&["sh", "-c", "echo two; exit 7"], &["echo", "three"]]);
    let outcome = stage.outcome(fails).await;
    assert_eq!((outcome.verdict, outcome.exit), (Verdict::Failed, Some(7)));
    assert_eq!(outcome.stdout.tail, b"one\ntwo\n");
    assert_eq!(outcome.reason.as_deref(), Some("command 2 of 3: sh -c echo two; exit 7"));

    let mut missing = shell("echo one");
    then(&mut missing, &[&["no-such-program"]]);
    let outcome = stage.outcome(missing).await;
    assert_eq!((outcome.verdict, outcome.exit), (Verdict::Failed, Some(127)));
    assert_eq!(outcome.stdout.tail, b"one\n", "what the first wrote is kept");
    let reason = "command 2 of 2 (no-such-program): no such program: no-such-program";
    assert_eq!(outcome.reason.as_deref(), Some(reason));
}

#[tokio::test]
async fn the_time_limit_is_over_all_commands_together() {
    let stage = Stage::set().await;
    let mut spec = shell("sleep 0.2");
    then(&mut spec, &[&["sleep", "60"], &["true"]]);
    spec.timeout = Some(mutirao_core::quantity::Span(std::time::Duration::from_millis(600)));
    let outcome = stage.outcome(spec).await;
    assert_eq!(outcome.verdict, Verdict::TimedOut);
    assert_eq!(outcome.reason.as_deref(), Some("command 2 of 3 (sleep 60): ran longer than its 600ms"));
    assert_eq!(stage.started().len(), 1, "it began once");
}

#[tokio::test]
async fn a_task_can_have_commands_and_variables_of_its_own() {
    let stage = Stage::set().await;
    let mut spec = command(&["never"]);
    exec(&mut spec).env = [("A".into(), "template".into()), ("B".into(), "template".into())].into();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let own = Handout {
        index: 1,
        n: 1,
        command: Some(words("printenv A")),
        then: vec![words("printenv B")],
        env: [("A".into(), "own".into())].into(),
        ..Handout::default()
    };
    stage.hand_out_as(1, spec, vec![own]).await;
    let done = stage.wait_done(1).await;
    assert_eq!(done[0].outcome.stdout.tail, b"own\ntemplate\n", "{:?}", done[0].outcome);
}
