//! A batch as bytes, for the log. Everything is little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 3 | `MtB` |
//! | 1 | the version of this form, 1 |
//! | 4 | CRC-32 of all that follows |
//! | 4 | the schema's fingerprint |
//! | 4 | rows |
//! | | each column, in the order of the fields |
//!
//! A column of ints, times or floats has 8 bytes a row. Bools have a bit each, the first lowest, in whole bytes. Texts have
//! their lengths, 2 bytes each, then all their bytes. What is not a number is always the same bytes, so that batches that
//! are equal are equal to the byte.
//!
//! Whatever the bytes are, reading them gives a batch or an error, and allocates no more than a few times their length.

use std::sync::Arc;

use super::{Batch, Column, ROWS_MAX, TEXT_BYTES_MAX, Texts};
use crate::schema::{Kind, Schema};

const MAGIC: &[u8; 3] = b"MtB";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    #[error("this is no batch of events")]
    NoBatch,
    #[error("the batch is of version {0}, and this program reads {VERSION}: it was written by a newer one")]
    Version(u8),
    #[error("the batch was damaged: its checksum differs")]
    Damaged,
    #[error("the batch holds events of another schema")]
    OtherSchema,
    #[error("the batch is written wrongly: {0}")]
    Wrong(&'static str),
}

/// Adds the bytes of a batch to what is there.
pub fn write(batch: &Batch, out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(HEAD_BYTES + batch.bytes());
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&batch.schema().fingerprint().to_le_bytes());
    out.extend_from_slice(&(batch.rows() as u32).to_le_bytes());
    for column in batch.columns() {
        match column {
            Column::Int(all) | Column::Time(all) => {
                all.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
            }
            Column::Float(all) => all.iter().for_each(|value| out.extend_from_slice(&plain(*value).to_le_bytes())),
            Column::Bool(all) => out.extend(all.chunks(8).map(packed)),
            Column::Text(all) => {
                all.iter_bytes().for_each(|text| out.extend_from_slice(&(text.len() as u16).to_le_bytes()));
                out.extend_from_slice(all.all().as_bytes());
            }
        }
    }
    let sum = crc32fast::hash(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// One of the many ways to be no number.
fn plain(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn packed(bools: &[bool]) -> u8 {
    bools.iter().enumerate().fold(0, |byte, (n, yes)| byte | u8::from(*yes) << n)
}

/// The batch that these bytes are, no more and no less.
pub fn read(bytes: &[u8], schema: &Arc<Schema>) -> Result<Batch, BinaryError> {
    if bytes.len() < HEAD_BYTES || &bytes[..3] != MAGIC {
        return Err(BinaryError::NoBatch);
    }
    if bytes[3] != VERSION {
        return Err(BinaryError::Version(bytes[3]));
    }
    let mut rest = Rest(&bytes[4..]);
    let sum = rest.u32()?;
    if crc32fast::hash(rest.0) != sum {
        return Err(BinaryError::Damaged);
    }
    if rest.u32()? != schema.fingerprint() {
        return Err(BinaryError::OtherSchema);
    }
    let rows = rest.u32()? as usize;
    if rows > ROWS_MAX {
        return Err(BinaryError::Wrong("it has more rows than a batch holds"));
    }
    let columns: Vec<Column> =
        schema.fields.iter().map(|field| rest.column(field.kind, rows)).collect::<Result<_, _>>()?;
    if !rest.0.is_empty() {
        return Err(BinaryError::Wrong("there is more behind it"));
    }
    Batch::of(schema.clone(), columns).map_err(|_| BinaryError::Wrong("its columns do not fit each other"))
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], BinaryError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BinaryError::Wrong("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, BinaryError> {
        let mut four = [0; 4];
        four.copy_from_slice(self.bytes(4)?);
        Ok(u32::from_le_bytes(four))
    }

    fn eights<T>(&mut self, rows: usize, of: impl Fn([u8; 8]) -> T) -> Result<Vec<T>, BinaryError> {
        let (eights, _) = self.bytes(8 * rows)?.as_chunks::<8>();
        Ok(eights.iter().map(|eight| of(*eight)).collect())
    }

    fn column(&mut self, kind: Kind, rows: usize) -> Result<Column, BinaryError> {
        Ok(match kind {
            Kind::Int => Column::Int(self.eights(rows, i64::from_le_bytes)?),
            Kind::Time => Column::Time(self.eights(rows, i64::from_le_bytes)?),
            Kind::Float => Column::Float(self.eights(rows, f64::from_le_bytes)?),
            Kind::Bool => {
                let packed = self.bytes(rows.div_ceil(8))?;
                Column::Bool((0..rows).map(|n| packed[n / 8] >> (n % 8) & 1 == 1).collect())
            }
            Kind::Text => Column::Text(self.texts(rows)?),
        })
    }

    fn texts(&mut self, rows: usize) -> Result<Texts, BinaryError> {
        let (lengths, _) = self.bytes(2 * rows)?.as_chunks::<2>();
        let mut end = 0;
        let mut ends = Vec::with_capacity(rows);
        for length in lengths {
            let length = u32::from(u16::from_le_bytes(*length));
            if length as usize > TEXT_BYTES_MAX {
                return Err(BinaryError::Wrong("a text is too long"));
            }
            end += length;
            ends.push(end);
        }
        let all = std::str::from_utf8(self.bytes(end as usize)?).map_err(|_| BinaryError::Wrong("a text is none"))?;
        Texts::of(ends, all.to_owned()).ok_or(BinaryError::Wrong("a text ends inside a character"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{batch, rows, schema};
    use super::*;

    fn written(batch: &Batch) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(batch, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(rows in rows()) {
            let batch = batch(&rows);
            prop_assert_eq!(read(&written(&batch), &schema()), Ok(batch));
        }

        #[test]
        fn one_changed_byte_is_noticed(rows in rows(), at in any::<proptest::sample::Index>(), by in 1u8..) {
            let mut bytes = written(&batch(&rows));
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            prop_assert!(read(&bytes, &schema()).is_err());
        }

        #[test]
        fn rubbish_with_a_true_checksum_gives_an_answer(rows in rows(), at in 8usize..400, by in 1u8.., cut in 0usize..40) {
            let mut bytes = written(&batch(&rows));
            let length = bytes.len();
            bytes.truncate((length - cut.min(length)).max(HEAD_BYTES));
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= by;
            let sum = crc32fast::hash(&bytes[8..]);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
            let _ = read(&bytes, &schema());
        }

        #[test]
        fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read(&bytes, &schema()).is_err());
        }
    }

    #[test]
    fn each_thing_that_can_be_wrong_is_told() {
        let bytes = written(&batch(&[(1, 1.0, true, "a".into(), 1)]));
        assert_eq!(read(b"", &schema()), Err(BinaryError::NoBatch));
        let mut newer = bytes.clone();
        newer[3] = 2;
        assert_eq!(read(&newer, &schema()), Err(BinaryError::Version(2)));
        let other = Arc::new(Schema::of([("n", Kind::Int)]));
        assert_eq!(read(&bytes, &other), Err(BinaryError::OtherSchema));
        assert_eq!(read(&bytes[..bytes.len() - 1], &schema()), Err(BinaryError::Damaged));
    }

    #[test]
    fn whatever_is_not_a_number_is_written_the_same() {
        let schema = Arc::new(Schema::of([("x", Kind::Float)]));
        let of = |value| written(&Batch::of(schema.clone(), vec![Column::Float(vec![value])]).unwrap());
        assert_eq!(of(f64::NAN), of(-f64::NAN));
        assert_ne!(of(0.0), of(-0.0));
    }
}
