//! The lines of what is imported, each read as the operation that it is, or refused by its number in the file.

use std::io::{BufRead, Read};

use mutirao_core::Problem;
use mutirao_kv::view::Operation;

/// Bytes of a line, with its end: the largest value, each of its bytes escaped (`\u0001`), with its key and its type.
const LINE_BYTES_MAX: u64 = 7 << 20;

/// An operation, and how long it is.
#[derive(Debug)]
pub struct Line {
    pub operation: Operation,
    pub bytes: usize,
}

pub struct Lines<R> {
    input: R,
    n: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn of(input: R) -> Self {
        Self { input, n: 0 }
    }

    /// None at the end. The server would name a wrong one by its place in a batch, of which nobody knows where it begins.
    fn read(&mut self) -> Result<Option<Line>, String> {
        loop {
            let mut line = Vec::new();
            let read = self.input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            if read.map_err(|error| error.to_string())? == 0 {
                return Ok(None);
            }
            self.n += 1;
            if line.len() as u64 > LINE_BYTES_MAX {
                return Err(format!("more than {LINE_BYTES_MAX} bytes; each entry has a line of its own"));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let operation: Operation = serde_json::from_slice(&line)
                .map_err(|error| format!("{error}; a line is an object like those of `mutirao kv export`"))?;
            operation.clone().read().map_err(|problem: Problem| problem.line())?;
            return Ok(Some(Line { operation, bytes: line.len() }));
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        // Where it could not be read at all, it was the line after the last.
        read.map_err(|wrong| format!("line {}: {wrong}", self.n.max(1))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &[u8]) -> String {
        Lines::of(text).find_map(Result::err).unwrap()
    }

    #[test]
    fn what_is_wrong_is_told_by_the_line_it_stands_in() {
        let good = "{\"key\": \"a\", \"value\": \"1\"}\r\n\n  \n";
        let after = |line: &str| wrong(format!("{good}{line}\n").as_bytes());
        for (line, why) in [
            ("{\"key\": \"\", \"value\": \"1\"}", "line 4: key: it is empty"),
            ("{\"key\": \"a\"}", "line 4: value: there is none"),
            ("{\"key\": \"a\", \"value\": \"1\", \"ttl\": \"soon\"}", "line 4: ttl: \"soon\" is not a time"),
            ("{\"key\": \"a\", \"vlaue\": \"1\"}", "line 4: unknown field `vlaue`"),
            ("rubbish", "line 4: expected value at line 1 column 1"),
        ] {
            assert!(after(line).starts_with(why), "{line}: {}", after(line));
        }
        assert!(wrong(b"\"\xff\"").starts_with("line 1: "), "what is no UTF-8");
        let all: Vec<_> = Lines::of(good.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!((all.len(), all[0].operation.key.as_str()), (1, "a"));
    }

    #[test]
    fn a_line_may_be_as_long_as_the_largest_value_and_no_longer() {
        let line = |bytes: usize| format!("{{\"key\": \"a\", \"value\": \"{}\"}}", "\\u0001".repeat(bytes));
        let largest = line(1 << 20);
        let read: Vec<Line> = Lines::of(largest.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(read[0].operation.value.as_deref().unwrap().len(), 1 << 20);
        assert!(wrong(line((1 << 20) + 1).as_bytes()).contains("1048577 bytes are too many"));
        assert!(wrong(&vec![b' '; 8 << 20]).contains("each entry has a line of its own"));
    }
}
