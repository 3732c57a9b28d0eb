//! Whoever can say what a resource manager would do now. Given to the fleet, which decides nothing itself.

use mutirao_elastic::packing::Kind;
use mutirao_elastic::protocol::Balance;
use mutirao_elastic::view::Plan;

pub trait Planner: Send + Sync + 'static {
    /// Without I/O; the holder is left out.
    fn plan(&self, balance: Balance, kinds: Vec<Kind>) -> Plan;
}
