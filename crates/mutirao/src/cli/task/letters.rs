//! `mutirao task letters`: of one queue, or of all ways that jobs go.

use mutirao_client::Client;
use mutirao_core::QueueName;
use mutirao_core::job::LettersRemoved;

use crate::cli::out::Out;
use crate::cli::show;
use crate::failure::{Exit, Failure};

pub async fn list(client: &Client, queue: Option<&QueueName>, limit: u32, out: Out) -> Result<(), Failure> {
    let mut letters = Vec::new();
    match queue {
        Some(queue) => letters = client.letters(queue, limit).await?,
        None => {
            for count in client.letter_counts().await? {
                letters.extend(client.letters_by(&count.way, limit).await?);
            }
        }
    }
    out.answer(&letters, |letters| show::letters(letters))
}

/// Without ids all of them.
pub async fn remove(client: &Client, queue: Option<&QueueName>, ids: Vec<String>, out: Out) -> Result<(), Failure> {
    let mut sum = LettersRemoved::default();
    match queue {
        Some(queue) if ids.is_empty() => sum = client.remove_letters(queue).await?,
        Some(queue) => {
            for id in &ids {
                sum.letters += client.remove_letter(queue, id).await?.letters;
            }
        }
        None if ids.is_empty() => {
            for count in client.letter_counts().await? {
                sum.letters += client.remove_letters_by(&count.way).await?.letters;
            }
        }
        None => {
            let ways: Vec<String> = client.letter_counts().await?.into_iter().map(|count| count.way).collect();
            for id in &ids {
                sum.letters += anywhere(client, &ways, id).await?;
            }
        }
    }
    out.answer(&sum, |sum| match sum.letters {
        0 => "there were no dead letters".into(),
        1 => "1 dead letter is gone".into(),
        letters => format!("{letters} dead letters are gone"),
    })
}

/// On whichever of these ways it lies.
async fn anywhere(client: &Client, ways: &[String], id: &str) -> Result<u64, Failure> {
    let mut letters = 0;
    for way in ways {
        match client.remove_letter_by(way, id).await {
            Ok(removed) => letters += removed.letters,
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if letters == 0 {
        let line = format!("there is no dead letter {id}; `mutirao task letters` shows those that are there");
        return Err(Failure::new(Exit::NotFound, line));
    }
    Ok(letters)
}
