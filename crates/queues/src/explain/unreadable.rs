//! What is said of a queue whose definition this program cannot read: a newer one wrote it, or it is damaged.

use mutirao_core::id::QueueName;

use super::{Reason, because};

pub fn sentence(queue: &QueueName, why: &str) -> String {
    format!("the definition of queue \"{queue}\" cannot be read by this version: {why}")
}

pub fn remedy(queue: &QueueName) -> String {
    format!("upgrade the managers, replace it with `mutirao apply`, or `mutirao queue delete {queue}`")
}

pub fn reason(queue: &QueueName, why: &str) -> Reason {
    because(format!("{}, so the queue is held", sentence(queue, why)), remedy(queue))
}
