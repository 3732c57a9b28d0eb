//! A folder as a part: one entry for each file, its name and length before its bytes. Names are checked as keys of blobs
//! are, so that none leads out of the folder it is unpacked into.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use mutirao_core::blobs::check_key;

use super::BackupError;
use super::archive::{Reader, Writer};
use crate::folder;

/// Bytes carried at a time.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// One file, as an entry is headed.
pub(super) struct Entry {
    pub name: String,
    pub bytes: u64,
}

/// Adds the file under this name. One that is gone by now is passed over; one that grows is taken as it was.
pub(super) fn put(writer: &mut Writer, name: &str, path: &Path) -> Result<u64, BackupError> {
    let named = BackupError::io(path);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(named(error)),
    };
    let bytes = file.metadata().map_err(&named)?.len();
    writer.count(1);
    writer.write(&(name.len() as u16).to_le_bytes())?;
    writer.write(&bytes.to_le_bytes())?;
    writer.write(name.as_bytes())?;
    let (mut rest, mut buffer) = (file.take(bytes), vec![0; BUFFER_BYTES]);
    let mut put = 0;
    loop {
        match rest.read(&mut buffer).map_err(&named)? {
            0 if put < bytes => return Err(named(ErrorKind::UnexpectedEof.into())),
            0 => return Ok(bytes),
            n => {
                writer.write(&buffer[..n])?;
                put += n as u64;
            }
        }
    }
}

/// The next entry's head; its bytes follow, and must be read before the next.
pub(super) fn next(reader: &mut Reader) -> Result<Option<Entry>, BackupError> {
    let mut head = [0; 10];
    if !reader.exact(&mut head)? {
        return Ok(None);
    }
    let (len, bytes) = head.split_at(2);
    let mut name = vec![0; usize::from(u16::from_le_bytes([len[0], len[1]]))];
    let whole = reader.exact(&mut name)?;
    let name = String::from_utf8(name).ok().filter(|name| whole && check_key(name).is_ok());
    let name = name.ok_or_else(|| reader.damaged("an entry has no good name"))?;
    Ok(Some(Entry { name, bytes: bytes.try_into().map_or(0, u64::from_le_bytes) }))
}

/// Passes an entry's bytes on, a piece at a time.
pub(super) fn each_piece(
    reader: &mut Reader,
    entry: &Entry,
    piece_bytes: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let (mut left, mut buffer) = (entry.bytes, vec![0; piece_bytes]);
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(piece_bytes);
        if !reader.exact(&mut buffer[..now])? {
            return Err(reader.damaged("an entry is cut"));
        }
        take(&buffer[..now])?;
        left -= now as u64;
    }
    Ok(())
}

/// Makes files (0600) of the part's entries under this folder; `made` hears of each, with the bytes of the archive it took.
pub(super) fn unpack(reader: &mut Reader, root: &Path, mut made: impl FnMut(String, u64)) -> Result<(), BackupError> {
    while let Some(entry) = next(reader)? {
        let path = root.join(&entry.name);
        let named = BackupError::io(&path);
        folder::make_unsynced(folder::parent_of(&path)).map_err(&named)?;
        let mut file = folder::open_file(&path).map_err(&named)?;
        each_piece(reader, &entry, BUFFER_BYTES, |piece| file.write_all(piece).map_err(&named))?;
        made(entry.name, reader.took());
    }
    Ok(())
}
