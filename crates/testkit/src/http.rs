//! One HTTP request, by hand: what goes over the wire is exactly what the test wrote, also when it is wrong.
//!
//! Not a client. Reads the answer to the end of the connection and knows no redirects, no chunks, no TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends a request with these headers (`Host` and `Content-Length` are added) and reads the answer. HTTP/1.0, so that
/// the answer ends with the connection and comes unchunked.
pub fn request(at: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Answer> {
    let mut head = format!("{line} HTTP/1.0\r\nHost: {at}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    // A server that refuses a body may close before all of it is written; its answer is what counts.
    let sent = stream.write_all(body);
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    match parse(&bytes) {
        Some(answer) => Ok(answer),
        None => Err(sent.and(read).err().unwrap_or_else(|| io::Error::other("the answer is not HTTP"))),
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Answer { status, head, body: bytes[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = parse(b"HTTP/1.0 404 Not Found\r\nContent-Type: text/x\r\n\r\nno\r\n\r\nsuch").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (404, "no\r\n\r\nsuch"));
        assert_eq!(answer.header("content-type"), Some("text/x"));
        assert!(parse(b"rubbish").is_none());
    }
}
