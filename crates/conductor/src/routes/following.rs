//! What happens, as it happens, by server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};
use mutirao_core::Problem;
use mutirao_surface::{Args, Part, Rejection, only};
use serde::Deserialize;

use crate::service::{Follower, From, Streams, Tap};
use crate::view::{StreamView, Tapped};

/// Hosts say how they are each second.
const PACE: Duration = Duration::from_secs(1);

/// Follow a stream: an event `stream` with the whole of it whenever it is different. Ends when it is deleted.
#[utoipa::path(get, path = "/v1/streams/{name}/events", tag = "streams", params(("name" = String, Path)),
    responses((status = 200, description = "Events named `stream`.", content_type = "text/event-stream", body = StreamView),
              (status = 404, body = Problem, description = "No such stream.")))]
pub(super) async fn events(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Part(name): Part<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    let follower = streams.follow(&caller, &name, PACE).await?;
    let events = stream::unfold(follower, |mut follower: Follower| async move {
        let view = follower.next().await?;
        Some((Ok(Event::default().event("stream").json_data(&view).ok()?), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TapArgs {
    /// From this offset of the log on, or from the first that it has; from now on when left out.
    from: Option<u64>,
}

/// Tap a port: an event `events` with what came out there, as it comes. It takes nothing away, and holds nobody back.
#[utoipa::path(get, path = "/v1/streams/{name}/tap/{port}", tag = "streams",
    params(("name" = String, Path), ("port" = String, Path), TapArgs),
    responses((status = 200, description = "Events named `events`.", content_type = "text/event-stream", body = Tapped),
              (status = 404, body = Problem, description = "No such stream, or no port of it that can be tapped.")))]
pub(super) async fn tap(
    State(streams): State<Streams>,
    only::Viewer(caller): only::Viewer,
    Part((name, port)): Part<(String, String)>,
    Args(args): Args<TapArgs>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    let tap = streams.tap(&caller, &name, &port, args.from.map_or(From::Now, From::Offset)).await?;
    let events = stream::unfold(tap, |mut tap: Tap| async move {
        let tapped = tap.next().await?;
        let event = Event::default().event("events").id(tapped.offset.to_string()).json_data(&tapped).ok()?;
        Some((Ok(event), tap))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
