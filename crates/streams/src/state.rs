//! How what an operator remembers is written down and read again.
//!
//! A snapshot is a frame: what it is, its version, which definition it belongs to, the body, and a checksum of all of it. What
//! is damaged, of another version or of another operator is refused as a whole; then an older snapshot is used, and more of
//! the log is read again. Equal states give equal bytes, so replicas can be compared by their snapshots.
//!
//! **Taken without stopping.** Keys are written in chunks of [`CHUNK`]. When a snapshot begins, nothing is written yet; from
//! then on a chunk is written *before* it is first changed, and some of the rest each time somebody calls
//! [`advance`](Saver::advance), say after each batch; then, as slowly, they are put together ([`Frame`]). So a batch pays for
//! the few keys around each that it touches, at most, and what comes out is the state at the instant at which the snapshot
//! began. Nothing is copied in memory but the bytes that are the snapshot anyway, and while none is under way nothing is paid
//! at all.

/// So many keys are written at once: few, because a batch of many keys may touch as many chunks.
pub const CHUNK: usize = 4;
/// So many bytes are put together in the time of a key.
const KEY_BYTES: usize = 1024;
/// Of what is written here.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"MUSS";
const HEAD: usize = 4 + 2 + 4 + 8;
const TAIL: usize = 4;

/// Bytes that are no state of this operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("this is no snapshot")]
    Foreign,
    #[error(
        "the snapshot has version {0}, and this program reads {VERSION}: use the program that wrote it, or an older snapshot"
    )]
    Version(u16),
    #[error("the snapshot is of an operator with another definition")]
    Other,
    #[error("the snapshot is damaged: use an older one")]
    Damaged,
    #[error("the snapshot holds what no operator writes: use an older one")]
    Value,
}

/// Puts a body into its frame. `definition` tells apart operators that could not read each other's state.
pub fn seal(definition: u32, body: Vec<u8>) -> Vec<u8> {
    let mut frame = Some(Frame::of(definition, vec![body]));
    Frame::go_on(&mut frame, usize::MAX).unwrap_or_default()
}

/// A frame that is put together piece by piece.
pub struct Frame {
    bytes: Vec<u8>,
    hash: crc32fast::Hasher,
    rest: std::vec::IntoIter<Vec<u8>>,
}

impl Frame {
    pub fn of(definition: u32, pieces: Vec<Vec<u8>>) -> Self {
        let length: usize = pieces.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(HEAD + length + TAIL);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(definition.to_le_bytes());
        bytes.extend((length as u64).to_le_bytes());
        let mut hash = crc32fast::Hasher::new();
        hash.update(&bytes);
        Self { bytes, hash, rest: pieces.into_iter() }
    }

    /// Goes on with one that is there, for the time of about so many keys. All of it, once nothing is left.
    pub fn go_on(frame: &mut Option<Frame>, keys: usize) -> Option<Vec<u8>> {
        let Frame { bytes, hash, rest } = frame.as_mut()?;
        let enough = bytes.len().saturating_add(keys.saturating_mul(KEY_BYTES));
        while bytes.len() < enough {
            let Some(piece) = rest.next() else {
                let Frame { mut bytes, hash, .. } = frame.take()?;
                bytes.extend(hash.finalize().to_le_bytes());
                return Some(bytes);
            };
            hash.update(&piece);
            bytes.extend(piece);
        }
        None
    }
}

/// The body of a frame that is whole and ours.
pub fn open(definition: u32, bytes: &[u8]) -> Result<&[u8], Unreadable> {
    let mut head = Reader::new(bytes);
    if head.array::<4>().ok() != Some(MAGIC) {
        return Err(Unreadable::Foreign);
    }
    let version = u16::from_le_bytes(head.array()?);
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (theirs, length) = (head.u32()?, head.u64()?);
    let whole = HEAD as u64 + TAIL as u64;
    if length.checked_add(whole) != Some(bytes.len() as u64) {
        return Err(Unreadable::Damaged);
    }
    let (framed, sum) = bytes.split_at(bytes.len() - TAIL);
    if crc32fast::hash(framed).to_le_bytes() != sum {
        return Err(Unreadable::Damaged);
    }
    if theirs != definition {
        return Err(Unreadable::Other);
    }
    Ok(&framed[HEAD..])
}

/// Numbers of fixed width, the lowest byte first.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn i128(&mut self, value: i128) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// How many of something follow.
    pub fn count(&mut self, count: usize) {
        self.u64(count as u64);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Unreadable::Damaged)?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn u8(&mut self) -> Result<u8, Unreadable> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Unreadable> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn i128(&mut self) -> Result<i128, Unreadable> {
        self.array().map(i128::from_le_bytes)
    }

    /// At least a byte follows for each, so that a wrong count cannot ask for more memory than there are bytes.
    pub fn count(&mut self) -> Result<usize, Unreadable> {
        self.count_up_to(usize::MAX)
    }

    pub fn count_up_to(&mut self, most: usize) -> Result<usize, Unreadable> {
        let count = usize::try_from(self.u64()?).map_err(|_| Unreadable::Value)?;
        if count > most || count > self.rest.len() { Err(Unreadable::Value) } else { Ok(count) }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = self.count()?;
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(bytes)
    }

    pub fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable::Value)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), Unreadable> {
        if self.is_empty() { Ok(()) } else { Err(Unreadable::Value) }
    }
}

/// What has a form in a snapshot.
pub trait Stored: Sized {
    fn store(&self, to: &mut Writer);
    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable>;
}

macro_rules! stored {
    ($($kind:ty: $word:ident),*) => {$(
        impl Stored for $kind {
            fn store(&self, to: &mut Writer) {
                to.$word(*self);
            }
            fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                from.$word()
            }
        }
    )*};
}

stored!(u64: u64, i64: i64, i128: i128);

/// The chunks of a snapshot that is under way.
#[derive(Debug)]
pub struct Saver {
    chunks: Vec<Option<Vec<u8>>>,
    keys: usize,
    /// Before this one all are written.
    next: usize,
}

impl Saver {
    /// Of so many keys, numbered from nought.
    pub fn of(keys: usize) -> Self {
        Self { chunks: vec![None; keys.div_ceil(CHUNK)], keys, next: 0 }
    }

    /// To be called before a key changes. Keys that are newer than the snapshot are no part of it.
    pub fn before(&mut self, key: u32, write: &dyn Fn(usize, &mut Writer)) {
        let chunk = key as usize / CHUNK;
        if self.chunks.get(chunk).is_some_and(Option::is_none) {
            self.write(chunk, write);
        }
    }

    fn write(&mut self, chunk: usize, write: &dyn Fn(usize, &mut Writer)) {
        let mut to = Writer::default();
        (chunk * CHUNK..self.keys.min((chunk + 1) * CHUNK)).for_each(|key| write(key, &mut to));
        self.chunks[chunk] = Some(to.into_bytes());
    }

    /// Writes about so many keys of what is left; whether nothing is left after that.
    pub fn advance(&mut self, keys: usize, write: &dyn Fn(usize, &mut Writer)) -> bool {
        let mut left = keys.div_ceil(CHUNK);
        while self.next < self.chunks.len() && left > 0 {
            if self.chunks[self.next].is_none() {
                self.write(self.next, write);
                left -= 1;
            }
            self.next += 1;
        }
        self.next == self.chunks.len()
    }

    /// How many keys, then all chunks in order; those that are not yet written are written now.
    pub fn finish(mut self, write: &dyn Fn(usize, &mut Writer)) -> Vec<Vec<u8>> {
        self.advance(usize::MAX, write);
        let count = (self.keys as u64).to_le_bytes().to_vec();
        std::iter::once(count).chain(self.chunks.into_iter().flatten()).collect()
    }
}

#[cfg(test)]
mod tests;
