//! What a queue is, as people write it and read it: its [definition](spec), whether that makes sense, what is
//! [shown](view) of it, and in which words it is [explained](explain) why its tasks do not run.
//!
//! The API, the CLI and the client share these types. What follows from a definition (who goes next, how many may be out)
//! is decided by the desk of `jobs`; how many workers a queue gets, by `elastic`. No I/O.
//!
//! ```
//! use mutirao_queues::QueueSpec;
//!
//! let json = r#"{"name": "night", "policy": "priority", "limits": {"running": 8}}"#;
//! let queue: QueueSpec = serde_json::from_str(json).unwrap();
//! assert!(queue.check().is_ok());
//! ```

mod check;
pub mod explain;
pub mod spec;
pub mod view;

pub use explain::{Explanation, QueueFacts, Reason, TaskFacts};
pub use spec::{By, Defaults, FairShare, Limits, Policy, QueueSpec, Workers};
pub use view::{QueueLoad, QueueSight, QueueView};
