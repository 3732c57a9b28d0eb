//! Keys kept and flows started: handed to the manager, which knows each row by its number and takes it once.

use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::clock::ClockExt;
use mutirao_streams::part::SinkRow;
use mutirao_streams::wire::{Delivery, ITEMS_MAX, Item, Part};

use super::{Away, Given, Outlet};
use crate::manager::ManagerError;
use crate::running::Means;

/// Of one delivery, unless one item alone is larger.
const BYTES_MAX: usize = 1 << 20;
const ANSWER_MAX: Duration = Duration::from_secs(30);

pub struct Deliver {
    part: Part,
    epoch: u64,
    means: Means,
}

impl Deliver {
    pub fn of(part: Part, epoch: u64, means: Means) -> Self {
        Self { part, epoch, means }
    }
}

fn item(row: &SinkRow) -> Item {
    // It was written by us.
    let value = serde_json::from_slice(&row.value).unwrap_or_default();
    Item { number: row.place.to_string(), key: row.name.clone(), value }
}

#[async_trait]
impl Outlet for Deliver {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let (mut done, mut given) = (0, Given::default());
        while done < rows.len() {
            let mut bytes = 0;
            let fits = rows[done..].iter().take(ITEMS_MAX).take_while(|row| {
                bytes += row.value.len();
                bytes <= BYTES_MAX
            });
            let until = done + fits.count().max(1);
            let items = rows[done..until].iter().map(item).collect();
            let delivery = Delivery { part: self.part.clone(), epoch: self.epoch, items };
            let answer = self.means.clock.timeout(ANSWER_MAX, self.means.manager.deliver(delivery)).await;
            match answer {
                Ok(Ok(delivered)) => {
                    for refusal in delivered.refused {
                        let row = rows[done..until].iter().position(|row| row.place.to_string() == refusal.number);
                        given.refused.extend(row.map(|row| (done + row, refusal.why)));
                    }
                }
                // The manager refuses to hear this part: it may have gone to another host, which the next orders say.
                Ok(Err(ManagerError::Refused(why) | ManagerError::Away(why) | ManagerError::Followed(why))) => {
                    return Err(Away { done, given, why });
                }
                Err(_) => return Err(Away { done, given, why: "the manager does not answer".into() }),
            }
            done = until;
        }
        Ok(given)
    }
}
