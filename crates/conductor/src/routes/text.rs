//! Bodies that are no JSON of ours: read whole, within the bound of the route.

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use mutirao_core::Problem;
use mutirao_surface::Rejection;

use crate::service::DEFINITION_BYTES_MAX;

/// Whatever was sent.
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let read = Bytes::from_request(request, state).await;
        let bytes = read.map_err(|rejection| match rejection.into_response().status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Problem::new(413, "too-large", "the body is too large").remedy("send less at a time")
            }
            _ => Problem::malformed("the body ended early"),
        })?;
        Ok(Self(bytes))
    }
}

/// A definition.
pub struct Text(pub String);

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        if bytes.len() > DEFINITION_BYTES_MAX {
            let detail = format!("{} bytes are too many, the most is {DEFINITION_BYTES_MAX}", bytes.len());
            return Err(Problem::new(413, "too-large", "the definition is too large").detail(detail).into());
        }
        match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Ok(Self(text)),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                Err(Problem::malformed(format!("the body is not UTF-8: byte {at} is wrong")).into())
            }
        }
    }
}
