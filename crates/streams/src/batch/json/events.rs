//! Where one event of a message ends and the next begins, found without reading them, so that one that is broken is given
//! back by itself.

/// Events of a message: objects, one after the other, with or without commas, lines and an array around them. Everything
/// that is no object is rubbish up to the end of its line.
pub struct Events<'a> {
    rest: &'a [u8],
    /// An object did not end: from here on, each line is taken for itself. So a broken one costs the others nothing, and
    /// no byte is looked at more than twice.
    by_line: bool,
}

impl<'a> Events<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message, by_line: false }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn line(&self) -> usize {
        self.rest.iter().position(|b| *b == b'\n').unwrap_or(self.rest.len())
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<&'a [u8], &'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let between = |b: &u8| b.is_ascii_whitespace() || matches!(b, b',' | b'[' | b']');
        let gap = self.rest.iter().take_while(|b| between(b)).count();
        self.take(gap);
        if self.rest.is_empty() {
            return None;
        }
        if self.rest[0] != b'{' {
            let line = self.line();
            return Some(Err(self.take(line)));
        }
        if self.by_line {
            let line = self.line();
            return Some(Ok(self.take(line).trim_ascii_end()));
        }
        match object(self.rest) {
            Some(end) => Some(Ok(self.take(end))),
            None => {
                self.by_line = true;
                let line = self.line();
                Some(Ok(self.take(line).trim_ascii_end()))
            }
        }
    }
}

/// Where the object that begins here ends. Nothing when it does not.
fn object(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (n, b) in bytes.iter().enumerate() {
        if quoted {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                // A text of JSON has no line end in it: the quote before was not closed.
                b'\n' => return None,
                _ => {}
            }
            continue;
        }
        match b {
            b'"' => quoted = true,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(n + 1);
                }
            }
            _ => {}
        }
    }
    None
}
