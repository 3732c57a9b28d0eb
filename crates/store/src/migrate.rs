//! Versioned steps. Each component (a capability, the api) has its own list, numbered from 1 without gaps; what has been
//! applied is in the table `migrations`. Steps only ever expand: dropping what an older program still reads waits for a
//! later release.

/// One step of a component's schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub component: &'static str,
    pub version: u32,
    pub sql: &'static str,
}
