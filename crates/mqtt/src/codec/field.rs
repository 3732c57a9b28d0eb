//! The fields that packets are made of, read from a body that is complete.

use bytes::Bytes;

use super::{Malformed, Pid};

pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    pub fn pid(&mut self) -> Result<Pid, Malformed> {
        Pid::new(self.u16()?).ok_or(Malformed::ZeroPid)
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let text = std::str::from_utf8(self.slice()?).map_err(|_| Malformed::Text)?;
        if text.contains('\0') {
            return Err(Malformed::Text);
        }
        Ok(text)
    }

    /// Copied: a slice of the connection's buffer would keep all of it alive for a few bytes that are retained.
    pub fn binary(&mut self) -> Result<Bytes, Malformed> {
        Ok(Bytes::copy_from_slice(self.slice()?))
    }

    pub fn rest(&mut self) -> Bytes {
        Bytes::copy_from_slice(std::mem::take(&mut self.0))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }

    fn slice(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u16()?);
        let (slice, rest) = self.0.split_at_checked(len).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(slice)
    }
}
