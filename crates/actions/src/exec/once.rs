//! One process for each task: the input on its stdin, the output on its stdout, an exit code that says whether it went well,
//! and why not as the last line of its stderr.

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::process::{Program, Running, last_line};
use crate::Action;
use crate::definition::Output;

pub struct Once {
    pub program: Program,
    pub output: Output,
}

#[async_trait]
impl Action for Once {
    async fn run(&self, data: &str) -> Result<String, String> {
        let Running { mut child, held } = self.program.start()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that does not care for its input closes it early.
                let _ = stdin.write_all(data.as_bytes()).await;
            }
            Ok(())
        };
        let complaints = async {
            let mut last = String::new();
            if let Some(stderr) = stderr {
                last_line(stderr, |line| last = line.to_owned()).await;
            }
            Ok(last)
        };
        let output = async {
            match stdout {
                Some(stdout) => bounded(stdout, self.program.output_bytes_max).await,
                None => Ok(Vec::new()),
            }
        };
        // Who says too much is not heard out.
        let talk = async { tokio::try_join!(output, feed, complaints) };
        tokio::pin!(talk);
        // Something it left behind may hold its pipes open: whoever waits for the program does not wait for that.
        let (status, said) = tokio::select! {
            said = &mut talk => {
                let said = said?;
                (child.wait().await, said)
            }
            status = child.wait() => {
                held.end().await;
                (status, talk.await?)
            }
        };
        let (output, (), why) = said;
        let status = status.map_err(|error| format!("it cannot be waited for: {error}"))?;
        if let Some(broken) = held.broken().filter(|_| !status.success()) {
            return Err(broken);
        }
        if !status.success() {
            return Err(if why.is_empty() { format!("it ended with {status}") } else { why });
        }
        let text = String::from_utf8(output).map_err(|_| "what it gave back is not UTF-8".to_owned())?;
        let text = text.trim();
        if self.output == Output::Json
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
        {
            return Err(format!("what it gave back is no JSON: {error}"));
        }
        Ok(if text.is_empty() { "null".into() } else { text.to_owned() })
    }
}

async fn bounded(from: impl AsyncRead + Unpin, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut output = Vec::new();
    let read = from.take(bytes_max as u64 + 1).read_to_end(&mut output).await;
    read.map_err(|error| format!("its output cannot be read: {error}"))?;
    match output.len() > bytes_max {
        true => Err(format!("it gave back more than {bytes_max} bytes")),
        false => Ok(output),
    }
}
