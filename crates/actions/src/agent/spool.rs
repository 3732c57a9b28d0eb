//! Results that nobody else has yet, in a file: appended, which the end of this process cannot undo, and synced, which a power
//! cut cannot, before a result counts as kept; crossed out once it was taken. One sync is for all that was appended before it.
//! What was only half written when the power went is cut off; where whole records stand behind something broken, they are
//! kept, and the file as it was is put aside as `spool.broken` for whoever wants to look.
//!
//! A record is its length and a checksum (4 bytes each, little-endian) and then a kind, a number of 8 bytes and, if it is
//! kept, the text. Crossing out is not synced: the worst is a result that is sent twice, which counts once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub const RESULTS_MAX: usize = 1_000;
pub const BYTES_MAX: usize = 4 << 20;
/// Past this, what was crossed out is left behind in a new file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// What says that it is longer is no record.
const RECORD_BYTES_MAX: usize = 2 * BYTES_MAX;
const HEAD: usize = 8;
const BODY_MIN: usize = 9;
const KEPT: u8 = b'k';
const GONE: u8 = b'g';

pub struct Spool {
    path: PathBuf,
    file: File,
    file_bytes: u64,
    waiting: BTreeMap<u64, String>,
    bytes: usize,
    next: u64,
    pub(super) sync: Sync,
}

/// How far the disk has what was appended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sync {
    Done,
    Due,
    /// It failed. A disk may say so once, and drop what it had: what waits is written anew.
    Failed,
}

impl Spool {
    /// The folder must be there, and nobody else's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        let Readback { waiting, next, good, skipped } = read_back(&all);
        if good < all.len() {
            tracing::warn!(
                bytes = all.len() - good,
                "the end of the spool was not whole, as after a power cut: cut off"
            );
        }
        let bytes = waiting.values().map(String::len).sum();
        let mut spool =
            Self { path: path.to_owned(), file, file_bytes: good as u64, waiting, bytes, next, sync: Sync::Done };
        if skipped > 0 {
            let aside = path.with_extension("broken");
            tracing::error!(
                bytes = skipped,
                kept = spool.waiting.len(),
                file = %aside.display(),
                "the spool is broken in its middle, and results may be lost: those behind it are kept, the file is put aside"
            );
            write_whole(&aside, &all)?;
            spool.rewrite()?;
        } else {
            spool.file.set_len(good as u64)?;
            spool.file.seek(SeekFrom::Start(good as u64))?;
        }
        sync_folder(path)?;
        Ok(spool)
    }

    /// In the order they came.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, &str)> {
        self.waiting.iter().map(|(number, text)| (*number, text.as_str()))
    }

    pub fn text(&self, number: u64) -> Option<&str> {
        self.waiting.get(&number).map(String::as_str)
    }

    pub fn has_room(&self) -> bool {
        self.waiting.len() < RESULTS_MAX && self.bytes < BYTES_MAX
    }

    /// Its number. It is to be synced.
    pub fn put(&mut self, text: String) -> io::Result<u64> {
        let number = self.next;
        self.append(&record(KEPT, number, text.as_bytes()))?;
        if self.sync == Sync::Done {
            self.sync = Sync::Due;
        }
        self.next += 1;
        self.bytes += text.len();
        self.waiting.insert(number, text);
        Ok(number)
    }

    /// Back once all that waits is on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = match self.sync {
            Sync::Done => return Ok(()),
            Sync::Due => self.file.sync_data(),
            Sync::Failed => self.rewrite(),
        };
        self.sync = if synced.is_ok() { Sync::Done } else { Sync::Failed };
        synced
    }

    /// Somebody else has it.
    pub fn gone(&mut self, number: u64) {
        let Some(text) = self.waiting.remove(&number) else { return };
        self.bytes -= text.len();
        let tidied = match self.waiting.is_empty() {
            true => self.empty(),
            false => self.append(&record(GONE, number, &[])).and_then(|()| self.shrink()),
        };
        if let Err(error) = tidied {
            // It will be sent once more after a restart.
            tracing::warn!("a result that was sent cannot be crossed out: {error}");
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.file_bytes += bytes.len() as u64,
            // Half of it may be there: what comes next must not stand behind it.
            Err(_) => {
                self.file.set_len(self.file_bytes)?;
                self.file.seek(SeekFrom::Start(self.file_bytes))?;
            }
        }
        written
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.file_bytes, self.sync) = (0, Sync::Done);
        Ok(())
    }

    fn shrink(&mut self) -> io::Result<()> {
        if self.file_bytes < FILE_BYTES_MAX { Ok(()) } else { self.rewrite() }
    }

    /// What is waiting and nothing else, in a new file.
    fn rewrite(&mut self) -> io::Result<()> {
        let aside = self.path.with_extension("new");
        let all: Vec<u8> =
            self.waiting.iter().flat_map(|(number, text)| record(KEPT, *number, text.as_bytes())).collect();
        let file = write_whole(&aside, &all)?;
        std::fs::rename(&aside, &self.path)?;
        sync_folder(&self.path)?;
        (self.file, self.file_bytes, self.sync) = (file, all.len() as u64, Sync::Done);
        Ok(())
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    Ok(file)
}

fn sync_folder(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn record(kind: u8, number: u64, text: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(HEAD + BODY_MIN + text.len());
    body.extend_from_slice(&[0; HEAD]);
    body.push(kind);
    body.extend_from_slice(&number.to_le_bytes());
    body.extend_from_slice(text);
    let (length, sum) = ((body.len() - HEAD) as u32, crc32fast::hash(&body[HEAD..]));
    body[..4].copy_from_slice(&length.to_le_bytes());
    body[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    body
}

#[derive(Default)]
struct Readback {
    waiting: BTreeMap<u64, String>,
    next: u64,
    /// Up to the end of the last whole record.
    good: usize,
    /// Bytes between whole records that are none.
    skipped: usize,
}

fn read_back(all: &[u8]) -> Readback {
    let (mut read, mut at) = (Readback::default(), 0);
    while at < all.len() {
        let Some((kind, number, text, length)) = read_one(&all[at..]) else {
            // The next may begin anywhere: how long a broken one is nobody knows.
            at += 1;
            continue;
        };
        read.skipped += at - read.good;
        at += length;
        read.good = at;
        read.next = read.next.max(number + 1);
        match kind {
            KEPT => drop(read.waiting.insert(number, text)),
            _ => drop(read.waiting.remove(&number)),
        }
    }
    read
}

fn read_one(all: &[u8]) -> Option<(u8, u64, String, usize)> {
    let word = |at: usize| all.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let (length, sum) = (word(0)? as usize, word(4)?);
    if !(BODY_MIN..=RECORD_BYTES_MAX).contains(&length) || !matches!(all.get(HEAD), Some(&(KEPT | GONE))) {
        return None;
    }
    let body = all.get(HEAD..HEAD + length)?;
    if crc32fast::hash(body) != sum {
        return None;
    }
    let number = u64::from_le_bytes(body[1..BODY_MIN].try_into().ok()?);
    let text = String::from_utf8(body[BODY_MIN..].to_vec()).ok()?;
    (number < u64::MAX).then_some((body[0], number, text, HEAD + length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(spool: &Spool) -> Vec<String> {
        spool.waiting().map(|(_, text)| text.to_owned()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Puts and removals, then the file is cut anywhere: what was synced before the cut and not crossed out is there.
        #[test]
        fn wherever_the_power_goes_what_was_kept_before_is_there(
            steps in proptest::collection::vec((any::<bool>(), 0usize..4, 0usize..50), 1..30),
            cut in 0.0..1.0f64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("spool");
            let mut spool = Spool::open(&path).unwrap();
            let mut history = vec![(0u64, vec![])];
            for (put, which, length) in steps {
                match put {
                    true => drop(spool.put("x".repeat(length)).unwrap()),
                    false => {
                        let number = spool.waiting().nth(which).map(|(number, _)| number);
                        if let Some(number) = number {
                            spool.gone(number);
                        }
                    }
                }
                if spool.file_bytes == 0 {
                    history.clear();
                }
                history.push((spool.file_bytes, texts(&spool)));
            }
            let end = (spool.file_bytes as f64 * cut) as u64;
            drop(spool);
            File::options().write(true).open(&path).unwrap().set_len(end).unwrap();
            let expected = history.iter().rev().find(|(bytes, _)| *bytes <= end).map(|(_, texts)| texts.clone());
            let again = Spool::open(&path).unwrap();
            prop_assert_eq!(Some(texts(&again)), expected);
        }
    }

    #[test]
    fn a_broken_record_ends_what_is_read_and_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::open(&path).unwrap();
        let numbers: Vec<u64> = (0..3).map(|n| spool.put(format!("result {n}")).unwrap()).collect();
        spool.gone(numbers[0]);
        let good = spool.file_bytes;
        drop(spool);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(&record(KEPT, 9, b"whole")[..20]).unwrap();
        let mut spool = Spool::open(&path).unwrap();
        assert_eq!((texts(&spool), spool.file_bytes), (vec!["result 1".to_owned(), "result 2".into()], good));
        assert_eq!(spool.put("next".into()).unwrap(), 3);
        assert_eq!(texts(&Spool::open(&path).unwrap()).len(), 3);
    }

    #[test]
    fn a_broken_record_in_the_middle_costs_itself_and_the_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::open(&path).unwrap();
        let numbers: Vec<u64> =
            (0..50).map(|n| spool.put(format!("result {n} {}", "x".repeat(20_000))).unwrap()).collect();
        spool.gone(numbers[40]);
        drop(spool);
        let mut bytes = std::fs::read(&path).unwrap();
        // One bit of a text, and all of what says how long another is.
        bytes[30_000] ^= 1;
        let third = bytes.windows(9).position(|part| part == b"result 3 ").unwrap();
        bytes[third - 17..third - 13].copy_from_slice(&[0xff; 4]);
        // And its end is not whole.
        bytes.extend_from_slice(&record(KEPT, 50, b"half")[..12]);
        std::fs::write(&path, &bytes).unwrap();
        let mut spool = Spool::open(&path).unwrap();
        let names = |spool: &Spool| texts(spool).iter().map(|text| text[7..9].trim().to_owned()).collect::<Vec<_>>();
        let left: Vec<String> = (0..50).filter(|n| ![1, 3, 40].contains(n)).map(|n| n.to_string()).collect();
        assert_eq!(names(&spool), left);
        assert_eq!(std::fs::read(folder.path().join("spool.broken")).unwrap(), bytes, "as it was");
        assert_eq!(spool.put("result 50".into()).unwrap(), 50);
        assert_eq!(names(&Spool::open(&path).unwrap()).len(), left.len() + 1, "it is whole again");
    }

    #[test]
    fn after_a_disk_that_refused_to_sync_all_that_waits_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::open(&path).unwrap();
        for n in 0..3 {
            spool.put(format!("result {n}")).unwrap();
        }
        assert!(spool.sync == Sync::Due);
        // It drops what it had, and says so once.
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        spool.sync = Sync::Failed;
        spool.put("result 3".into()).unwrap();
        spool.sync().unwrap();
        assert!(spool.sync == Sync::Done);
        assert_eq!(texts(&Spool::open(&path).unwrap()), ["result 0", "result 1", "result 2", "result 3"]);
    }

    #[test]
    fn it_is_bounded_and_what_was_crossed_out_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::open(&path).unwrap();
        let keeps = spool.put("stays".into()).unwrap();
        for _ in 0..40 {
            let number = spool.put("x".repeat(1 << 20)).unwrap();
            spool.gone(number);
            assert!(spool.file_bytes < FILE_BYTES_MAX + (2 << 20));
        }
        assert_eq!(texts(&Spool::open(&path).unwrap()), ["stays"]);
        while spool.has_room() {
            spool.put("y".repeat(1 << 20)).unwrap();
        }
        assert!(spool.bytes <= BYTES_MAX + (1 << 20));
        spool.gone(keeps);
    }
}
