//! TLS, once for everybody: what a server shows ([`Serving`]), whom a client believes ([`Trust`]), and what went wrong
//! in words ([`Fault`]). The API, the client and the link take their configurations from here, and so can whatever
//! speaks to a broker or a database.
//!
//! What is *not* here: sockets, settings, and who may do what (a certificate says which server this is; callers prove
//! themselves by token or signature).

mod certificate;
mod fault;
mod files;
mod serving;
mod trust;
mod verify;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

pub use certificate::{EXPIRES_SOON, days_left, until as ends_at};
pub use fault::Fault;
pub use files::TlsError;
pub use serving::Serving;
pub use trust::{Believe, Trust};

/// HTTP/1.1 is all that either side speaks.
const ALPN: &[u8] = b"http/1.1";

/// The one implementation of the cryptography.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// Makes ours the cryptography of the whole process, for libraries that ask for the default. Called once, by `main`.
pub fn install() {
    // Fails only when there is one already, which is as good.
    let _ = ring::default_provider().install_default();
}
