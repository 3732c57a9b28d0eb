//! Bytes that come in pieces, as text for programs that want JSON. What is not UTF-8 becomes `�`; a character that is
//! cut in two by the end of a piece waits for its other half.

#[derive(Debug, Default)]
pub struct Pieces {
    /// The beginning of a character, at most three bytes.
    held: Vec<u8>,
}

impl Pieces {
    /// The whole characters up to here.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let rest = self.held.split_off(whole(&self.held));
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    /// What is left when nothing more comes.
    pub fn end(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

/// How many bytes come before a character that is cut off at the end.
fn whole(bytes: &[u8]) -> usize {
    let cut = |at: &usize| match std::str::from_utf8(&bytes[*at..]) {
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
        Ok(_) => false,
    };
    (bytes.len().saturating_sub(3)..bytes.len()).find(cut).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_however_it_is_cut() {
        let bytes = "aé€😀z".as_bytes().iter().copied().chain([0xff, b'b', 0xe2, 0x82]).collect::<Vec<u8>>();
        for size in 1..=bytes.len() {
            let mut pieces = Pieces::default();
            let mut text: String = bytes.chunks(size).map(|piece| pieces.push(piece)).collect();
            text += &pieces.end();
            assert_eq!(text, String::from_utf8_lossy(&bytes), "in pieces of {size}");
        }
    }
}
