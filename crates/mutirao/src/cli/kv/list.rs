//! `mutirao kv list`: page after page, all as they were at the first, shown as they come, so that there may be any number.

use mutirao_client::Client;
use mutirao_core::Timestamp;
use mutirao_kv::view::{EntriesView, EntryView};

use super::super::out::{Out, Shape};
use super::super::show;
use super::PAGE_ROWS;
use super::hour::Ahead;
use crate::failure::Failure;

/// What is shown of each key beside what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Types,
    Values,
}

pub async fn run(client: &Client, prefix: &str, shown: Shown, limit: Option<u64>, out: Out) -> Result<(), Failure> {
    let mut listing = Listing { out, shown, now: Ahead::ask(client).await.now(), told: 0 };
    let (mut left, mut cursor) = (limit.unwrap_or(u64::MAX), None);
    loop {
        let rows = u32::try_from(left).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
        let values = shown == Shown::Values;
        let page: EntriesView = client.entries(prefix, values, cursor.as_deref(), Some(rows)).await?;
        listing.page(&page.entries)?;
        left = left.saturating_sub(page.entries.len() as u64);
        cursor = page.next;
        if cursor.is_none() || left == 0 {
            break;
        }
    }
    listing.end()?;
    if cursor.is_some() {
        out.note("there are more, or were; a longer prefix or a higher --limit shows them");
    }
    Ok(())
}

struct Listing {
    out: Out,
    shown: Shown,
    now: Timestamp,
    told: u64,
}

impl Listing {
    fn page(&mut self, entries: &[EntryView]) -> Result<(), Failure> {
        let is_first = self.told == 0;
        if entries.is_empty() {
            return Ok(());
        }
        self.told += entries.len() as u64;
        self.out.line(match self.out.shape {
            Shape::People if is_first => table(entries, self.shown, self.now),
            Shape::People => headless(&table(entries, self.shown, self.now)),
            // One list, though it is written in parts.
            Shape::Json => format!("{}{}", if is_first { "[\n" } else { "," }, elements(entries)?),
        })
    }

    fn end(&self) -> Result<(), Failure> {
        match (self.out.shape, self.told) {
            (Shape::People, 0) => self.out.line(table(&[], self.shown, self.now)),
            (Shape::People, _) => Ok(()),
            (Shape::Json, 0) => self.out.line("[]"),
            (Shape::Json, _) => self.out.line("]"),
        }
    }
}

fn headless(table: &str) -> String {
    table.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned())
}

fn elements(entries: &[EntryView]) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(entries).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(text.trim_start_matches("[\n").trim_end_matches("\n]").to_owned())
}

fn table(entries: &[EntryView], shown: Shown, now: Timestamp) -> String {
    let row = |entry: &EntryView| {
        let last = match (&entry.value, shown) {
            (Some(text), Shown::Values) => show::one_line(text),
            (None, Shown::Values) => "(not text)".into(),
            (_, Shown::Types) => entry.content_type.clone(),
        };
        [
            show::one_line(&entry.key),
            entry.revision.to_string(),
            show::size(entry.bytes),
            show::ago(entry.changed_at, now),
            show::or_dash(entry.expires_at.map(|at| show::rough(at.since(now)))),
            last,
        ]
    };
    let heading = match shown {
        Shown::Types => "TYPE",
        Shown::Values => "VALUE",
    };
    show::table(["KEY", "REVISION", "SIZE", "CHANGED", "LASTS", heading], entries.iter().map(row))
}
