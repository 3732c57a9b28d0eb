//! The broker's dead letters: shown, counted, removed.

use axum::Json;
use axum::extract::State;
use mutirao_broker::{LetterId, Letters};
use mutirao_core::Problem;
use mutirao_core::id::QueueName;
use mutirao_core::job::{Letter, LetterCount, LettersRemoved};
use mutirao_surface::{Args, PageArgs, Part, Rejection, only};
use serde::Deserialize;

use crate::service::Jobs;

/// How many messages lie on each way that nobody could make sense of; ways without any are left out.
#[utoipa::path(get, path = "/v1/letters", tag = "queues",
    responses((status = 200, description = "By way.", body = Vec<LetterCount>)))]
pub(super) async fn count(State(jobs): State<Jobs>, _: only::Operator) -> Result<Json<Vec<LetterCount>>, Rejection> {
    Ok(Json(jobs.letter_counts().await?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct LetterArgs {
    /// At most so many of each way, 100 when left out.
    limit: Option<u32>,
}

/// Messages of a queue that a worker or a manager could not make sense of, with the reason. They stay.
#[utoipa::path(get, path = "/v1/queues/{name}/letters", tag = "queues", params(("name" = String, Path), LetterArgs),
    responses((status = 200, description = "The oldest first.", body = Vec<Letter>),
              (status = 422, body = Problem, description = "No such queue.")))]
pub(super) async fn list(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part(name): Part<QueueName>,
    Args(args): Args<LetterArgs>,
) -> Result<Json<Vec<Letter>>, Rejection> {
    let limit = PageArgs { limit: args.limit, cursor: None }.rows()?;
    Ok(Json(jobs.letters(&name, limit).await?))
}

/// Messages that came one way and that nobody could make sense of, with the reason. They stay.
#[utoipa::path(get, path = "/v1/letters/{way}", tag = "queues", params(("way" = String, Path), LetterArgs),
    responses((status = 200, description = "The oldest first.", body = Vec<Letter>),
              (status = 404, body = Problem, description = "No such way.")))]
pub(super) async fn list_by(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part(way): Part<String>,
    Args(args): Args<LetterArgs>,
) -> Result<Json<Vec<Letter>>, Rejection> {
    let limit = PageArgs { limit: args.limit, cursor: None }.rows()?;
    Ok(Json(jobs.letters_by(&way, limit).await?))
}

/// Remove all messages that came one way and that nobody could make sense of, for good.
#[utoipa::path(delete, path = "/v1/letters/{way}", tag = "queues", params(("way" = String, Path)),
    responses((status = 200, description = "How many.", body = LettersRemoved),
              (status = 404, body = Problem, description = "No such way.")))]
pub(super) async fn remove_all_by(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part(way): Part<String>,
) -> Result<Json<LettersRemoved>, Rejection> {
    Ok(Json(jobs.remove_letters_by(&way, Letters::All).await?))
}

/// Remove one message that came this way, and others that are the same.
#[utoipa::path(delete, path = "/v1/letters/{way}/{id}", tag = "queues",
    params(("way" = String, Path), ("id" = String, Path)),
    responses((status = 200, description = "How many.", body = LettersRemoved),
              (status = 404, body = Problem, description = "No such way, or no such letter.")))]
pub(super) async fn remove_one_by(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part((way, id)): Part<(String, String)>,
) -> Result<Json<LettersRemoved>, Rejection> {
    Ok(Json(jobs.remove_letters_by(&way, Letters::One(LetterId(id))).await?))
}

/// Remove all messages of a queue that nobody could make sense of, for good.
#[utoipa::path(delete, path = "/v1/queues/{name}/letters", tag = "queues", params(("name" = String, Path)),
    responses((status = 200, description = "How many.", body = LettersRemoved),
              (status = 422, body = Problem, description = "No such queue.")))]
pub(super) async fn remove_all(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part(name): Part<QueueName>,
) -> Result<Json<LettersRemoved>, Rejection> {
    Ok(Json(jobs.remove_letters(&name, Letters::All).await?))
}

/// Remove one such message, and others that are the same.
#[utoipa::path(delete, path = "/v1/queues/{name}/letters/{id}", tag = "queues",
    params(("name" = String, Path), ("id" = String, Path)),
    responses((status = 200, description = "How many.", body = LettersRemoved),
              (status = 404, body = Problem, description = "No such letter."),
              (status = 422, body = Problem, description = "No such queue.")))]
pub(super) async fn remove_one(
    State(jobs): State<Jobs>,
    _: only::Operator,
    Part((name, id)): Part<(QueueName, String)>,
) -> Result<Json<LettersRemoved>, Rejection> {
    Ok(Json(jobs.remove_letters(&name, Letters::One(LetterId(id))).await?))
}
