//! The document at `/v1/openapi.json`: what the routes say of themselves, put together, with what they all share.

use mutirao_core::Problem;
use mutirao_core::auth::SIGNATURE_SCHEME;
use mutirao_surface::Capability;
use utoipa::PartialSchema;
use utoipa::ToSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, Content, Info, OpenApi, PathItem, Paths, Ref, Response};

const BEARER: &str = "token";
const SIGNATURE: &str = "signature";

/// Puts the API's own routes and the capabilities' together.
pub fn assemble(own: impl IntoIterator<Item = OpenApi>, capabilities: &[Capability]) -> OpenApi {
    let mut info = Info::new("Mutirão", env!("CARGO_PKG_VERSION"));
    info.description =
        Some("Runs work once, on a schedule, as a flow or without end, on machines that come and go.".into());
    let mut document = OpenApi::new(info, Paths::new());
    for part in own.into_iter().chain(capabilities.iter().map(|capability| capability.openapi.clone())) {
        document.merge(part);
    }
    document.components.get_or_insert_with(Components::new).schemas.insert(Problem::name().into(), Problem::schema());
    add_security(&mut document);
    document.paths.paths = std::mem::take(&mut document.paths.paths)
        .into_iter()
        .map(|(path, mut item)| {
            operations(&mut item).for_each(can_be_refused);
            // A route's `{*rest}` is a document's `{rest}`.
            (path.replace("{*", "{"), item)
        })
        .collect();
    document
}

fn add_security(document: &mut OpenApi) {
    let schemes = &mut document.components.get_or_insert_with(Components::new).security_schemes;
    let bearer =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of `/v1/tokens`.")).build();
    schemes.insert(BEARER.into(), SecurityScheme::Http(bearer).into());
    let how = format!(
        "`{SIGNATURE_SCHEME} key=<worker or key id>,time=<ms>,nonce=<hex>,sig=<base64>`: an Ed25519 signature with the key that \
         the worker or resource manager enrolled, good for one use within a minute."
    );
    let signature = ApiKey::Header(ApiKeyValue::with_description("Authorization", &how));
    schemes.insert(SIGNATURE.into(), SecurityScheme::ApiKey(signature).into());
    let none: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::new(BEARER, none), SecurityRequirement::new(SIGNATURE, none)]);
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch, &mut item.head]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// Every route can be refused for reasons that are not its own: no token, too fast, too large, going down.
fn can_be_refused(operation: &mut Operation) {
    let mut refusal = Response::new("Not carried out; the problem says why and what would help.");
    let schema = Ref::from_schema_name(Problem::name());
    refusal.content.insert("application/problem+json".into(), Content::new(Some(schema)).into());
    operation.responses.responses.entry("default".into()).or_insert(refusal.into());
}
