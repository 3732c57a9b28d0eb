//! Who asks, and how often. Nobody passes unproved; each principal has a rate; failures from one address are counted, and
//! past their rate answered without a word about why.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Extensions, HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_surface::Rejection;
use mutirao_surface::only::SignedFor;

use super::bodies::{allowance, too_large};
use crate::auth::signature::Claim;
use crate::auth::{Auth, Signatory};
use crate::recorder::STRANGERS;
use crate::throttle::{Throttle, household};

/// Calls about a lease change nothing when they are sent twice, and come every few seconds.
const LEASE: &str = "/v1/elastic/lease";

#[derive(Clone)]
pub struct Gate {
    pub auth: Arc<Auth>,
    pub rate: Arc<Throttle<String>>,
    pub failures: Arc<Throttle<IpAddr>>,
}

pub async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let peer = peer_of(request.extensions());
    match gate.prove(request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => Rejection(gate.count_failure(peer, problem)).into_response(),
    }
}

impl Gate {
    /// A failure as it is told: past the rate of failures it is only told to wait.
    pub fn count_failure(&self, peer: IpAddr, problem: Problem) -> Problem {
        if problem.status != 401 {
            return problem;
        }
        metrics::counter!(STRANGERS).increment(1);
        match self.failures.check(&household(peer)) {
            Ok(()) => {
                tracing::info!(%peer, why = %problem, "a caller could not be proved");
                problem
            }
            Err(wait_s) => Problem::busy("too many failures from this address", wait_s),
        }
    }

    /// Who asks by a token, for a request that [has one](token_of); the failure as it is told.
    pub async fn prove_token(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Principal>, Problem> {
        let proved = async {
            let principal = self.auth.by_token(token_of(headers).unwrap_or_default()).await?;
            self.count(&principal)?;
            Ok(principal)
        };
        proved.await.map_err(|problem| self.count_failure(peer, problem))
    }

    async fn prove(&self, mut request: Request) -> Result<Request, Problem> {
        // Nobody further in has a use for it.
        let header = request.headers_mut().remove(header::AUTHORIZATION).ok_or_else(|| {
            Problem::unauthenticated("the request carries no token")
                .remedy("send Authorization: Bearer <token>; the first one is in admin.token in the data folder")
        })?;
        let header = header.to_str().unwrap_or_default();
        match header.split_once(' ') {
            Some((scheme, text)) if scheme.eq_ignore_ascii_case("bearer") => {
                let principal = self.auth.by_token(text.trim()).await?;
                self.note(request, principal)
            }
            _ => self.prove_signed(header, request).await,
        }
    }

    async fn prove_signed(&self, header: &str, request: Request) -> Result<Request, Problem> {
        let claim = Claim::read(header).ok_or_else(|| {
            Problem::unauthenticated("the Authorization header cannot be read").remedy("send Bearer <token>")
        })?;
        let signatory = self.auth.claimant(&claim).await?;
        let (parts, body) = request.into_parts();
        let most = allowance(&parts.method, parts.uri.path());
        let body = axum::body::to_bytes(body, most).await.map_err(|_| too_large(most))?;
        let path = parts.uri.path_and_query().map_or(parts.uri.path(), |path| path.as_str());
        self.auth.prove(&signatory, &claim, parts.method.as_str(), path, &body)?;
        // Among these is what hands out secrets.
        let changes = parts.method != Method::GET && parts.uri.path() != LEASE;
        if changes && matches!(signatory, Signatory::Elastic(_)) {
            self.auth.must_be_new(&claim).await?;
        }
        let mut request = Request::from_parts(parts, Body::from(body));
        let principal = Arc::new(signatory.principal());
        match signatory {
            Signatory::Worker(worker) => drop(request.extensions_mut().insert(worker)),
            Signatory::Elastic(key) => {
                self.auth.mark_elastic_used(&key).await;
                request.extensions_mut().insert(SignedFor(key.manager.clone()));
                request.extensions_mut().insert(key);
            }
        }
        self.note(request, principal)
    }

    fn note(&self, mut request: Request, principal: Arc<Principal>) -> Result<Request, Problem> {
        self.count(&principal)?;
        request.extensions_mut().insert(principal);
        Ok(request)
    }

    fn count(&self, principal: &Principal) -> Result<(), Problem> {
        self.rate.check(&principal.id).map_err(|wait_s| {
            Problem::busy("too many requests with this token or key", wait_s).remedy("send fewer, or larger ones")
        })
    }
}

/// The token of a request that brings one.
pub fn token_of(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, text) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

/// Where the request comes from. Unknown only when no socket is involved.
pub fn peer_of(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(address)| address.ip())
}
