//! Events of a file, or of the standard input, pushed as many at a time as one request takes. A file of lines may be longer than
//! any request, and what comes line by line is pushed as it comes.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use mutirao_client::Client;
use mutirao_conductor::view::Pushed;
use mutirao_core::Dice;

use crate::failure::Failure;

/// So much is sent at once.
const PUSH_BYTES: usize = 512 << 10;
/// A single event, or an array of them, of more bytes is none that the API takes.
const LINE_BYTES_MAX: usize = 1 << 20;

pub async fn run(client: &Client, name: &str, source: &str, file: &Path) -> Result<Pushed, Failure> {
    let shown = file.display().to_string();
    let wrong = |error: std::io::Error| Failure::usage(format!("{shown}: {error}"));
    let reader: Box<dyn Read + Send> = match file.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(file).map_err(wrong)?),
    };
    let (mut reader, dice) = (BufReader::new(reader), Dice::from_os());
    let mut all = Pushed::default();
    let (mut first, mut asked) = (true, false);
    loop {
        let mut some = Vec::new();
        // Objects and arrays may go over several lines; what is read in one go is handed over as it is.
        let more = gather(&mut reader, &mut some, first).map_err(wrong)?;
        first = false;
        if some.iter().any(|byte| !byte.is_ascii_whitespace()) {
            asked = true;
            let key = format!("cli-{:016x}{:016x}", dice.u64(), dice.u64());
            let pushed: Pushed = client.push(name, source, some.into(), &key).await?;
            all.taken += pushed.taken;
            all.unfit += pushed.unfit;
        }
        if !more && !asked {
            return Err(Failure::usage(format!("{shown}: there is nothing in it; push JSON objects, one a line")));
        }
        if !more {
            return Ok(all);
        }
    }
}

/// Whole lines, up to a bound; whether there may be more.
fn gather(reader: &mut impl BufRead, some: &mut Vec<u8>, first: bool) -> std::io::Result<bool> {
    while some.len() < PUSH_BYTES {
        if reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', some)? == 0 {
            return Ok(false);
        }
        if some.len() > LINE_BYTES_MAX + PUSH_BYTES || first && some.len() > LINE_BYTES_MAX {
            return Err(std::io::Error::other(format!(
                "a line has more than {LINE_BYTES_MAX} bytes; write one event a line"
            )));
        }
    }
    Ok(true)
}
