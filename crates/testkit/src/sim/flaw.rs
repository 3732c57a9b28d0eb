//! Faults put into the models on purpose, to see that the simulation notices. Never a switch in the product: each is a
//! rule that a shell or a store could forget.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The store writes for whoever asks, also for an owner of yesterday.
    NoFence,
    /// Counters move with every settlement, also with one that is written a second time.
    CountsRepeats,
    /// A key that was used makes another job.
    ForgetsKeys,
    /// Reports are acknowledged when they are heard, not when what came of them is written.
    AcksBeforeSettling,
    /// A settlement that failed is not tried again.
    GivesUpSettling,
    /// An owner acts without asking whether its tenure holds.
    TrustsItsTenure,
    /// An owner never looks into the store for what it was not told.
    NeverReconciles,
    /// An owner goes on with a job that was cancelled behind its back.
    OverlooksCancels,
    /// An owner hears what became of a queue and does not mind.
    OverlooksDefinitions,
    /// Parcels that nobody took are never taken back.
    WaitsForLostParcels,
    /// The store keeps no sessions, so that a next owner waits for nobody.
    ForgetsSessions,
    /// A worker says ok without having run anything.
    LazyWorker,
    /// The broker sends more than a consumer has credit for.
    NoCredit,
    /// A worker keeps what waits behind its slow tasks.
    Hoards,
    /// An owner takes in what it has no room for.
    TakesInEverything,
    /// A manager starts in the folder of one that lives, and so under its name.
    SharesItsFolder,
    /// An owner does not know how long a task that failed is to wait.
    RetriesAtOnce,
    /// The store does not say that a job which cannot be read is there.
    HidesTheDamaged,
    /// An owner does not mind who is to rest.
    OverlooksRest,
}

impl Flaw {
    pub const ALL: [Flaw; 19] = [
        Flaw::NoFence,
        Flaw::CountsRepeats,
        Flaw::ForgetsKeys,
        Flaw::AcksBeforeSettling,
        Flaw::GivesUpSettling,
        Flaw::TrustsItsTenure,
        Flaw::NeverReconciles,
        Flaw::OverlooksCancels,
        Flaw::OverlooksDefinitions,
        Flaw::WaitsForLostParcels,
        Flaw::ForgetsSessions,
        Flaw::LazyWorker,
        Flaw::NoCredit,
        Flaw::Hoards,
        Flaw::TakesInEverything,
        Flaw::SharesItsFolder,
        Flaw::RetriesAtOnce,
        Flaw::HidesTheDamaged,
        Flaw::OverlooksRest,
    ];

    /// Whether it is to be looked for in a world where nothing else goes wrong.
    pub fn shows_in_fair_weather(self) -> bool {
        matches!(self, Flaw::Hoards)
    }

    /// Whether it is to be looked for while the store takes seconds for every write.
    pub fn shows_while_the_store_is_slow(self) -> bool {
        matches!(self, Flaw::TakesInEverything)
    }
}
