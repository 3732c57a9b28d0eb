//! What nodes of this machine are like: labels, and the layer they are in.

use std::collections::BTreeMap;
use std::str::FromStr;

use mutirao_elastic::packing::Layer;
use mutirao_nodes::routing::Policy;

/// `zone=lab,disk=fast`; `none` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(BTreeMap::new()));
        }
        let pair = |pair: &str| match pair.trim().split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("\"{pair}\" is not a label: write them like zone=lab,disk=fast")),
        };
        text.split(',').map(pair).collect::<Result<_, _>>().map(Self)
    }
}

/// How far from the devices this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InLayer(pub Layer);

impl FromStr for InLayer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "edge" => Ok(Self(Layer::Edge)),
            "fog" => Ok(Self(Layer::Fog)),
            "cloud" => Ok(Self(Layer::Cloud)),
            _ => Err(format!("\"{text}\" is not a layer: choose edge, fog or cloud")),
        }
    }
}

/// Which node gets a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing(pub Policy);

impl FromStr for Routing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "learned" => Ok(Self(Policy::Learned)),
            "round-robin" => Ok(Self(Policy::RoundRobin)),
            _ => Err(format!("\"{text}\" is neither: choose learned or round-robin")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs_and_a_slip_says_how_to_write_them() {
        let labels: Labels = "zone=lab, disk=fast".parse().unwrap();
        assert_eq!(labels.0.get("disk").map(String::as_str), Some("fast"));
        assert!("none".parse::<Labels>().unwrap().0.is_empty());
        for bad in ["zone", "=x", "zone=", ""] {
            assert!(bad.parse::<Labels>().unwrap_err().contains("zone=lab"), "{bad}");
        }
        assert!("sky".parse::<InLayer>().is_err());
    }
}
