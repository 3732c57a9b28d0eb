//! What people declare, and what becomes of it.

use serde::{Deserialize, Serialize};

use crate::Problem;

/// What a declaration made of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Made,
    Changed,
    /// It was so already.
    Unchanged,
}

/// What is wrong with one of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Wrong {
    /// Which of them, in the order in which they were sent; the first is 0.
    pub at: usize,
    pub problem: Problem,
}

impl Wrong {
    pub fn twice(at: usize) -> Self {
        Self { at, problem: Problem::new(422, "invalid", "it is declared twice") }
    }
}
