//! Where one event of a message ends and the next begins, found without reading them, so that one that is broken is given
//! back by itself.

/// Why what is not even an object does not fit.
const NO_OBJECT: &str = "it is no JSON object";
const CUT_OFF: &str = "the list that begins here does not end; it may have been cut off on its way";

/// Events of a message: objects, one after the other, with or without commas, lines and a list around them. Everything
/// that is no object is rubbish up to the end of its line, and so is a list in a list; a single value among the objects of a
/// list is rubbish by itself.
pub struct Events<'a> {
    rest: &'a [u8],
    place: Place,
}

/// Where in a message the next event is looked for. Who takes a message in pieces goes on with that of the piece before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A list began and has not ended.
    listed: bool,
    /// An object did not end: from here on, each line is taken for itself. So a broken one costs the others nothing, and
    /// no byte is looked at more than twice.
    by_line: bool,
}

/// Whether a list in it does not end, by whoever wants all of a message or nothing of it.
pub fn is_cut_off(message: &[u8]) -> bool {
    Events::at(message, Place::default()).any(|event| matches!(event, Err((_, why)) if why == CUT_OFF))
}

impl<'a> Events<'a> {
    pub fn at(message: &'a [u8], place: Place) -> Self {
        Self { rest: message, place }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn place(&self) -> Place {
        self.place
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn line(&self) -> usize {
        self.rest.iter().position(|b| *b == b'\n').unwrap_or(self.rest.len())
    }

    /// What lies between events. A list that does not begin like one of objects is left where it is.
    fn pass_gap(&mut self) {
        let blank = |b: &u8| b.is_ascii_whitespace() || *b == b',';
        loop {
            // What was broken may have had any brackets in it.
            let by_line = self.place.by_line;
            let gap = self.rest.iter().take_while(|b| blank(b) || by_line && matches!(b, b'[' | b']')).count();
            let gap = self.take(gap);
            match self.rest.first() {
                // A file of lines that is one list is pushed in pieces of whole lines.
                None if goes_on(gap) => self.place.listed = false,
                Some(b']') => self.place.listed = false,
                Some(b'[') if !self.place.listed => {
                    let next = self.rest[1..].iter().find(|b| !b.is_ascii_whitespace());
                    if !matches!(next, None | Some(b'{' | b']')) {
                        return;
                    }
                    self.place.listed = true;
                }
                _ => return,
            }
            if self.rest.is_empty() {
                return;
            }
            self.take(1);
        }
    }
}

/// Whether what stands at the end of a piece says that more comes.
fn goes_on(gap: &[u8]) -> bool {
    gap.contains(&b',') && gap.ends_with(b"\n")
}

impl<'a> Iterator for Events<'a> {
    /// One that may be read; or what is none, and why.
    type Item = Result<&'a [u8], (&'a [u8], &'static str)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pass_gap();
        if self.rest.is_empty() {
            let cut_off = std::mem::take(&mut self.place.listed) && !self.place.by_line;
            return cut_off.then_some(Err((b"[", CUT_OFF)));
        }
        if self.rest[0] != b'{' {
            let within = self.place.listed && !self.place.by_line;
            let rubbish = within.then(|| value(self.rest)).flatten().unwrap_or_else(|| self.line());
            return Some(Err((self.take(rubbish), NO_OBJECT)));
        }
        if self.place.by_line {
            let line = self.line();
            return Some(Ok(self.take(line).trim_ascii_end()));
        }
        match object(self.rest) {
            Some(end) => Some(Ok(self.take(end))),
            None => {
                self.place.by_line = true;
                let line = self.line();
                Some(Ok(self.take(line).trim_ascii_end()))
            }
        }
    }
}

/// Where the number, text or word that begins here ends, if a list may go on behind it.
fn value(bytes: &[u8]) -> Option<usize> {
    let end = match bytes.split_first()? {
        (b'"', text) => {
            let mut escaped = false;
            let closes = |b: &u8| {
                let closes = (*b == b'"' && !escaped) || *b == b'\n';
                escaped = *b == b'\\' && !escaped;
                closes
            };
            1 + text.iter().position(closes).filter(|end| text[*end] == b'"')? + 1
        }
        _ => bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count(),
    };
    let next = bytes[end..].iter().find(|b| !b.is_ascii_whitespace());
    (end > 0 && matches!(next, Some(b',' | b']'))).then_some(end)
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
