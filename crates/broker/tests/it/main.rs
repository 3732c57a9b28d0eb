//! Every broker against the one behaviour suite, and what only one of them has.

mod files;
mod link;
mod memory;
mod proxy;
mod rabbit;

#[allow(dead_code)]
pub fn dbg_logs() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .try_init();
}
