//! Which places a checker takes checks of: owners say now and then where some are wanted, and those that fit are taken for
//! as long as somebody says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Heard};
use mutirao_core::Mono;
use mutirao_core::check::{PLACES, checks_at};
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::open;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PAUSE, Shop};
use crate::envelope::Places;
use crate::placement::{Place, Standing};

/// Places that one checker takes checks of.
const PLACES_MAX: usize = 16;
/// How long one is believed to be wanted that nobody speaks of.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// How often it is looked which are not wanted any more.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is wanted here, by the marks of the places.
#[derive(Default)]
struct Wanted(BTreeMap<String, Mono>);

impl Wanted {
    /// The marks of those that are new.
    fn hear(&mut self, places: &[Place], standing: &Standing, now: Mono) -> Vec<String> {
        let mut new = Vec::new();
        for mark in places.iter().filter(|place| place.fits(standing)).map(Place::mark) {
            if let Some(heard) = self.0.get_mut(&mark) {
                *heard = now;
            } else if self.0.len() < PLACES_MAX {
                self.0.insert(mark.clone(), now);
                new.push(mark);
            } else {
                tracing::warn!("checks of more places are wanted here than one checker takes; some are left to others");
            }
        }
        new
    }

    /// The marks of those that nobody has spoken of for long.
    fn look(&mut self, now: Mono) -> Vec<String> {
        let old = |heard: &Mono| now.since(*heard) >= WANTED_FOR;
        let gone: Vec<String> = self.0.iter().filter(|(_, heard)| old(heard)).map(|(mark, _)| mark.clone()).collect();
        self.0.retain(|_, heard| !old(heard));
        gone
    }
}

/// The takers of places: one task for each queue, and for each place what ends its takers.
#[derive(Default)]
struct Takers {
    tasks: JoinSet<()>,
    stops: BTreeMap<String, CancellationToken>,
}

/// Until told to stop, and until all of them have.
pub(super) async fn follow(shop: Arc<Shop>) {
    let (mut wanted, mut takers) = (Wanted::default(), Takers::default());
    loop {
        let ended = tokio::select! {
            ended = listen(&shop, &mut wanted, &mut takers) => ended,
            () = shop.stop.cancelled() => break,
        };
        match ended {
            Err(BrokerError::Closed) => break,
            Err(error) => tracing::debug!(%error, "where checks are wanted is not heard; trying again"),
            Ok(()) => {}
        }
        shop.parts.clock.sleep(PAUSE).await;
    }
    while takers.tasks.join_next().await.is_some() {}
}

async fn listen(shop: &Arc<Shop>, wanted: &mut Wanted, takers: &mut Takers) -> Result<(), BrokerError> {
    let clock = &shop.parts.clock;
    let mut ear = shop.parts.broker.subscribe(PLACES).await?;
    loop {
        // Nothing is lost with a gap: it is said again.
        let heard = clock.timeout(LOOK_EVERY, ear.next()).await.unwrap_or(Ok(Heard::Gap))?;
        if let Heard::Message(body) = heard
            && let Ok(Places { places, rest, .. }) = open(&body)
        {
            if shop.parts.worker.as_ref().is_some_and(|own| rest.contains(own)) {
                tracing::info!("this checker is not needed any more: making what it has, then going");
                shop.stop.cancel();
            }
            for mark in wanted.hear(&places, &shop.parts.standing, clock.monotonic()) {
                let stop = shop.stop.child_token();
                for kind in shop.parts.kinds.iter() {
                    takers.tasks.spawn(shop.clone().take(checks_at(kind, &mark), stop.clone()));
                }
                takers.stops.insert(mark, stop);
            }
        }
        for mark in wanted.look(clock.monotonic()) {
            if let Some(stop) = takers.stops.remove(&mark) {
                stop.cancel();
            }
        }
        while takers.tasks.try_join_next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use mutirao_elastic::packing::Layer;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(Duration::from_secs(seconds))
    }

    fn zone(name: &str) -> Place {
        Place { layer: None, labels: BTreeMap::from([("zone".into(), name.into())]) }
    }

    #[test]
    fn what_fits_is_taken_for_as_long_as_somebody_wants_it() {
        let here = Standing { layer: Layer::Cloud, labels: zone("a").labels };
        let mut wanted = Wanted::default();
        assert_eq!(wanted.hear(&[zone("a"), zone("b")], &here, at(0)), [zone("a").mark()]);
        assert!(wanted.hear(&[zone("a")], &here, at(30)).is_empty(), "known already");
        assert!(wanted.look(at(89)).is_empty());
        assert_eq!(wanted.look(at(90)), [zone("a").mark()]);
        assert_eq!(wanted.hear(&[zone("a")], &here, at(91)).len(), 1, "it may come back");
    }

    #[test]
    fn one_checker_takes_checks_of_so_many_places_and_no_more() {
        let labels: BTreeMap<String, String> = (0..40).map(|n| (format!("l{n}"), "x".to_owned())).collect();
        let places: Vec<Place> = labels
            .iter()
            .map(|(key, value)| Place { layer: None, labels: BTreeMap::from([(key.clone(), value.clone())]) })
            .collect();
        let here = Standing { layer: Layer::Cloud, labels };
        assert_eq!(Wanted::default().hear(&places, &here, at(0)).len(), PLACES_MAX);
    }
}
