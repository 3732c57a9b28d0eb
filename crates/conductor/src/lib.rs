//! The manager's side of streams: which are deployed, and which host runs which part.
