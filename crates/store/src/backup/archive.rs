//! The file: a line that says what it is, then frames, each a letter, a length and that many bytes.
//!
//! `P` begins a part (its name), `D` is up to 1 MiB of it, compressed, `E` ends it (how much it was, and its checksum),
//! `M` is the manifest with its own checksum, and the end. Nothing is sought: an archive can be read from a pipe.
//! What a part means is not known here.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// What the file begins with; the number is the format's.
const MAGIC: &[u8] = b"MUTIRAO BACKUP 1\n";
/// As much of it as tells a backup of any format from anything else.
const MAGIC_COMMON: usize = 15;
const FORMAT: u32 = 1;

const PART: u8 = b'P';
const DATA: u8 = b'D';
const END: u8 = b'E';
const MANIFEST: u8 = b'M';

/// Bytes of a part in one frame, before they are compressed.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Bytes of one frame. A manifest lists tables, not rows, so it is small too.
const FRAME_BYTES_MAX: usize = 2 << 20;
const CHECKSUM_BYTES: usize = 32;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mutirao_core::Timestamp;

    use super::*;
    use crate::backup::{BackupError, Engine, Manifest, Stamp};

    fn written(path: &Path) -> Manifest {
        let mut writer = Writer::create(path).unwrap();
        for (name, body) in [("empty", vec![]), ("small", b"hello".to_vec()), ("large", noise(CHUNK_BYTES_MAX + 9_999))]
        {
            writer.begin(name).unwrap();
            body.chunks(99_991).for_each(|piece| writer.write(piece).unwrap());
            writer.count(1);
            writer.end().unwrap();
        }
        let stamp = Stamp { program: "0.0.0".into(), at: Timestamp(7) };
        writer.finish(Engine::Sqlite, [("jobs".into(), 1)].into(), &stamp).unwrap()
    }

    /// Hard to compress, so that damage lands in data and not only in headers.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    type Parts = Vec<(String, Vec<u8>)>;

    fn read_all(path: &Path) -> Result<(Manifest, Parts), BackupError> {
        let mut reader = Reader::open(path)?;
        let mut parts = Vec::new();
        while let Some(name) = reader.next_part()? {
            let mut body = Vec::new();
            while let Some(chunk) = reader.chunk()? {
                body.extend_from_slice(chunk);
            }
            parts.push((name, body));
        }
        Ok((reader.manifest()?, parts))
    }

    #[test]
    fn what_was_written_is_read_and_parts_may_be_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let manifest = written(&path);
        let (found, parts) = read_all(&path).unwrap();
        assert_eq!(found, manifest);
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["empty", "small", "large"]);
        assert!(parts[1].1 == b"hello" && parts[2].1 == noise(CHUNK_BYTES_MAX + 9_999));
        let mut reader = Reader::open(&path).unwrap();
        while reader.next_part().unwrap().is_some() {}
        assert_eq!(reader.manifest().unwrap(), manifest);
    }

    #[test]
    fn an_archive_cut_anywhere_is_told_to_end_too_early() {
        let dir = tempfile::tempdir().unwrap();
        let (path, cut) = (dir.path().join("b"), dir.path().join("cut"));
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        let places = [MAGIC.len(), MAGIC.len() + 3, 60, whole.len() / 2, whole.len() - 200, whole.len() - 1];
        for len in places {
            std::fs::write(&cut, &whole[..len]).unwrap();
            let refused = read_all(&cut).unwrap_err();
            assert!(matches!(refused, BackupError::Cut { .. }), "{len}: {refused}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bad) = (dir.path().join("b"), dir.path().join("bad"));
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        for place in (MAGIC.len()..whole.len()).step_by(whole.len() / 97) {
            let mut flipped = whole.clone();
            flipped[place] ^= 0x10;
            std::fs::write(&bad, &flipped).unwrap();
            assert!(read_all(&bad).is_err(), "byte {place}");
        }
    }

    #[test]
    fn what_is_no_backup_or_of_a_later_format_is_told_from_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        for foreign in [&b""[..], b"SQLite format 3\0...............", b"PGDMP", &[0; 4096]] {
            std::fs::write(&path, foreign).unwrap();
            assert!(matches!(Reader::open(&path).map(drop).unwrap_err(), BackupError::Foreign { .. }));
        }
        std::fs::write(&path, b"MUTIRAO BACKUP 2\nwhatever").unwrap();
        assert!(matches!(
            Reader::open(&path).map(drop).unwrap_err(),
            BackupError::NewerFormat { found: 2, known: 1, .. }
        ));
    }

    #[test]
    fn an_archive_that_was_given_up_leaves_nothing_and_one_that_is_there_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let mut given_up = Writer::create(&path).unwrap();
        given_up.begin("x").unwrap();
        drop(given_up);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        written(&path);
        assert!(matches!(Writer::create(&path).map(drop).unwrap_err(), BackupError::Exists { .. }));
        assert!(read_all(&path).is_ok());
    }
}
