//! What people declare, and what becomes of it.

use serde::{Deserialize, Serialize};

/// What a declaration made of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Made,
    Changed,
    /// It was so already.
    Unchanged,
}
