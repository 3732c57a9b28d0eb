//! Envelopes between programs of different versions. `tests/golden/` holds them as they were once written, one folder for
//! each shape they had. A recorded file is never changed: it is what programs out there still write, and still expect.
//!
//! When an envelope grows a field: give it a value in `parcel`, `reports` or `control` below, run
//! `MUTIRAO_TEST_RECORD=NEXT_FOLDER cargo test -p mutirao-core`, and commit the new folder beside the old ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mutirao_core::envelope::{
    Beat, Control, Done, Handout, Held, Parcel, ParcelId, Reports, Started, Template, Unreadable, Version, open, seal,
};
use mutirao_core::exec::Exec;
use mutirao_core::outcome::{Output, Usage};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};
use mutirao_core::{Attempt, JobKey, Outcome, SessionId, TaskKey, Timestamp, Verdict, WorkerId};
use serde_json::Value;

/// The folder that holds what this program writes.
const CURRENT: &str = "5";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn task(index: u32) -> TaskKey {
    TaskKey { job: JobKey(42), index }
}

const ATTEMPT: Attempt = Attempt { generation: 7, n: 2 };

fn parcel() -> Parcel {
    let exec = Exec {
        command: vec!["sh".into(), "-c".into(), "echo $X".into()],
        env: [("X".into(), "ü".into())].into(),
        then: vec![vec!["true".into()], vec!["echo".into(), "done".into()]],
        dir: Some("/tmp".into()),
        stdin: Some("line\n".into()),
    };
    let plain = TaskSpec { retry: Some(Retry::default()), ..TaskSpec::new(Action::Noop {}) };
    let spec = TaskSpec {
        action: Action::Exec(exec),
        needs: Needs { cpus: Cpus { milli: 500 }, memory: Bytes(64 << 20) },
        retry: Some(Retry { retries: 3, backoff: Span::secs(2), backoff_max: Span::secs(60), crashes: 1 }),
        timeout: Some(Span::secs(600)),
        grace: Span::secs(9),
    };
    let template = |job, spec| Template { job: JobKey(job), trace: "4bf92f3577b34da6a3ce929d0e0e4736".into(), spec };
    Parcel {
        v: Version::SECOND,
        id: ParcelId { generation: 7, n: 3 },
        reply_to: "results.jobs.0".into(),
        templates: vec![template(42, Arc::new(spec)), template(43, Arc::new(plain))],
        tasks: vec![
            Handout { t: 0, index: 1, n: 2, entry: Some("first".into()), ..Handout::default() },
            Handout {
                t: 1,
                index: 2,
                command: Some(vec!["true".into()]),
                then: vec![vec!["false".into()]],
                env: [("X".into(), "own".into())].into(),
                ..Handout::default()
            },
        ],
    }
}

fn reports() -> Reports {
    let output = |tail: &[u8]| Output { tail: tail.into(), bytes: 70_000, truncated: true, in_blobs: true };
    let outcome = Outcome {
        verdict: Verdict::Failed,
        exit: Some(3),
        signal: Some(9),
        reason: Some("why".into()),
        stdout: output(b"out"),
        stderr: output(b"\xff\x00"),
        started_at: Timestamp(1_700_000_000_123),
        usage: Usage { wall_us: 1, cpu_user_us: 2, cpu_system_us: 3, memory_peak_bytes: Some(4) },
    };
    let verdicts = [
        Verdict::Ok,
        Verdict::TimedOut,
        Verdict::Cancelled,
        Verdict::Lost,
        Verdict::Returned,
        Verdict::Unfit,
        Verdict::Refused,
    ];
    let done = |(index, outcome)| Done { task: task(index), attempt: ATTEMPT, trace: "t".into(), outcome };
    let plain = verdicts.into_iter().map(|verdict| Outcome::new(verdict, Timestamp(5)));
    Reports {
        number: Some(17),
        taken: vec![ParcelId { generation: 7, n: 3 }],
        started: vec![Started { task: task(1), attempt: ATTEMPT, at: Timestamp(6) }],
        done: (1..).zip(std::iter::once(outcome).chain(plain)).map(done).collect(),
        beat: Some(Beat {
            queue: "default".parse().unwrap(),
            host: "host".into(),
            pid: 99,
            capacity: Needs { cpus: Cpus { milli: 1_500 }, memory: Bytes(1 << 30) },
            draining: true,
            leaving: true,
            held: vec![Held { task: task(9), attempt: ATTEMPT, running: true }],
        }),
        detour: true,
        ..Reports::new(SessionId("s".into()), WorkerId("w".into()))
    }
}

fn control() -> Control {
    Control {
        cancel_jobs: vec![JobKey(42)],
        cancel_tasks: vec![task(1)],
        cancel_through: vec![ATTEMPT],
        drain: vec![SessionId("s".into())],
        ..Control::default()
    }
}

/// What this program writes, by the name of its file.
fn written() -> [(&'static str, Vec<u8>); 3] {
    [
        ("parcel", seal(&parcel()).to_vec()),
        ("reports", seal(&reports()).to_vec()),
        ("control", seal(&control()).to_vec()),
    ]
}

fn recorded(folder: &str, name: &str) -> Vec<u8> {
    let file = golden().join(folder).join(format!("{name}.json"));
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Reads it as what its name says, or says why not.
fn readable(name: &str, bytes: &[u8]) -> Result<(), Unreadable> {
    match name {
        "parcel" => open::<Parcel>(bytes).map(drop),
        "reports" => open::<Reports>(bytes).map(drop),
        _ => open::<Control>(bytes).map(drop),
    }
}

#[test]
fn this_program_records_what_it_writes_when_asked() {
    let Ok(folder) = std::env::var("MUTIRAO_TEST_RECORD") else { return };
    let folder = golden().join(folder);
    std::fs::create_dir(&folder).expect("a folder that is not there yet: recorded files are never changed");
    for (name, bytes) in written() {
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
        std::fs::write(folder.join(format!("{name}.json")), text).unwrap();
    }
}

#[test]
fn every_envelope_ever_recorded_is_read() {
    let mut read = 0;
    for folder in std::fs::read_dir(golden()).unwrap() {
        let folder = folder.unwrap().file_name().into_string().unwrap();
        for (name, _) in written() {
            readable(name, &recorded(&folder, name)).unwrap_or_else(|why| panic!("{folder}/{name}: {why}"));
            read += 1;
        }
    }
    assert!(read >= 3);
}

#[test]
fn what_this_program_recorded_means_what_it_meant() {
    assert_eq!(open::<Parcel>(&recorded(CURRENT, "parcel")).unwrap(), parcel());
    assert_eq!(open::<Reports>(&recorded(CURRENT, "reports")).unwrap(), reports());
    assert_eq!(open::<Control>(&recorded(CURRENT, "control")).unwrap(), control());
}

/// An older program finds all it ever found: fields are added, never renamed, taken away or given another form.
#[test]
fn what_is_written_now_still_has_all_that_was_recorded() {
    for (name, bytes) in written() {
        let (now, before): (Value, Value) =
            (serde_json::from_slice(&bytes).unwrap(), serde_json::from_slice(&recorded(CURRENT, name)).unwrap());
        assert_contains(&now, &before, name);
        assert_eq!(now, before, "{name} has grown: record it in a new folder, and make that CURRENT");
    }
}

fn assert_contains(now: &Value, before: &Value, path: &str) {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => {
            for (key, before) in before {
                let path = format!("{path}.{key}");
                assert_contains(now.get(key).unwrap_or_else(|| panic!("{path} is gone")), before, &path);
            }
        }
        (Value::Array(now), Value::Array(before)) => {
            assert_eq!(now.len(), before.len(), "{path}");
            now.iter().zip(before).enumerate().for_each(|(n, (a, b))| assert_contains(a, b, &format!("{path}[{n}]")));
        }
        _ => assert_eq!(now, before, "{path}"),
    }
}

/// A newer program's envelope: something unknown in every object there is.
#[test]
fn fields_of_a_newer_program_are_passed_over_at_every_depth() {
    fn grow(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(grow);
                // Names of variables and of variants are data: a new one there would mean something.
                let is_data = fields.contains_key("X") || fields.contains_key("exec") || fields.contains_key("noop");
                if !is_data {
                    fields.insert("of_the_future".into(), serde_json::json!({"a": [1, {"b": null}]}));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(grow),
            _ => {}
        }
    }
    let grown = |name| {
        let mut value: Value = serde_json::from_slice(&recorded(CURRENT, name)).unwrap();
        grow(&mut value);
        serde_json::to_vec(&value).unwrap()
    };
    assert_eq!(open::<Parcel>(&grown("parcel")).unwrap(), parcel());
    assert_eq!(open::<Reports>(&grown("reports")).unwrap(), reports());
    assert_eq!(open::<Control>(&grown("control")).unwrap(), control());
}

#[test]
fn an_envelope_of_a_newer_version_is_refused_as_such_and_not_as_rubbish() {
    for (name, _) in written() {
        let mut value: Value = serde_json::from_slice(&recorded(CURRENT, name)).unwrap();
        value["v"] = 3.into();
        let refused = readable(name, &serde_json::to_vec(&value).unwrap()).unwrap_err();
        assert!(matches!(refused, Unreadable::Newer { found: 3 }), "{name}: {refused}");
    }
}
