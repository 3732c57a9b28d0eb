use std::io::Write;

use mutirao_core::SystemClock;
use mutirao_core::clock::ClockExt;

use super::*;

fn tail(path: &Path, start: Start, position: Option<&[u8]>) -> Tail {
    Tail::of(path.into(), start, position, SystemClock::shared()).unwrap()
}

fn add(path: &Path, text: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

async fn lines(tail: &mut Tail, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let next = SystemClock.timeout(Duration::from_secs(5), tail.next()).await.expect("no line came");
        let Ok(Taken { came: Came::Lines(lines), .. }) = next else { continue };
        all.extend(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()));
    }
    all
}

async fn nothing(tail: &mut Tail) -> bool {
    SystemClock.timeout(Duration::from_millis(250), tail.next()).await.is_err()
}

#[tokio::test]
async fn half_a_line_waits_for_its_other_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    add(&path, "one\ntw");
    let mut tail = tail(&path, Start::Beginning, None);
    assert_eq!(lines(&mut tail, 1).await, ["one"]);
    assert!(nothing(&mut tail).await);
    add(&path, "o\n\nthree\n");
    assert_eq!(lines(&mut tail, 2).await, ["two", "three"]);
}

#[tokio::test]
async fn what_was_there_is_read_only_if_asked_for_and_a_file_that_comes_later_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    add(&path, "old\nha");
    let mut from_end = tail(&path, Start::End, None);
    add(&path, "lf\nnew\n");
    assert_eq!(lines(&mut from_end, 2).await, ["half", "new"]);
    let later = dir.path().join("later");
    let mut waiting = tail(&later, Start::End, None);
    assert!(waiting.next().await.unwrap_err().contains("is not there"));
    add(&later, "first\n");
    assert_eq!(lines(&mut waiting, 1).await, ["first"]);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_read_to_its_end_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("log"), dir.path().join("log.1"));
    add(&path, "1\n2\n");
    let mut one = tail(&path, Start::Beginning, None);
    assert_eq!(lines(&mut one, 2).await, ["1", "2"]);
    let position = one.position().unwrap();
    std::fs::rename(&path, &moved).unwrap();
    add(&moved, "3\n");
    add(&path, "4\n");
    assert_eq!(lines(&mut one, 2).await, ["3", "4"]);
    let mut again = tail(&path, Start::Beginning, Some(&position));
    assert_eq!(lines(&mut again, 2).await, ["3", "4"]);
}

#[tokio::test]
async fn whoever_writes_on_to_a_file_that_was_moved_away_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("log"), dir.path().join("log.1"));
    add(&path, "1\n");
    let mut writer = File::options().append(true).open(&path).unwrap();
    let mut tail = tail(&path, Start::Beginning, None);
    assert_eq!(lines(&mut tail, 1).await, ["1"]);
    std::fs::rename(&path, &moved).unwrap();
    add(&path, "4\n");
    assert!(nothing(&mut tail).await, "the writer may not have let go");
    writer.write_all(b"2\n").unwrap();
    assert_eq!(lines(&mut tail, 1).await, ["2"]);
    writer.write_all(b"3").unwrap();
    drop(writer);
    assert_eq!(lines(&mut tail, 2).await, ["3", "4"], "the rest of a file is a line, ended or not");
}

#[tokio::test]
async fn a_file_that_was_cut_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    add(&path, "a long line\n");
    let mut tail = tail(&path, Start::Beginning, None);
    assert_eq!(lines(&mut tail, 1).await, ["a long line"]);
    std::fs::write(&path, "b\n").unwrap();
    assert_eq!(lines(&mut tail, 1).await, ["b"]);
}
