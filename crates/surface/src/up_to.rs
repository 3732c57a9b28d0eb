//! A list that is read no further than as many as are taken: a hundred megabytes of the shortest things would be gigabytes in
//! memory before anybody could count them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpTo<const MAX: usize, T>(pub Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for UpTo<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Counted(PhantomData))
    }
}

struct Counted<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for Counted<MAX, T> {
    type Value = UpTo<MAX, T>;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "a list of up to {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            if read.len() == MAX {
                return Err(A::Error::custom(format!(
                    "there are more than {MAX}, the most at once; send them in parts"
                )));
            }
            read.push(item);
        }
        Ok(UpTo(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_up_to_its_bound_and_no_further() {
        let read = serde_json::from_str::<UpTo<2, u8>>;
        assert_eq!(read("[1, 2]").unwrap(), UpTo(vec![1, 2]));
        let error = read("[1, 2, 3, \"not even looked at\"]").unwrap_err().to_string();
        assert!(error.contains("more than 2"), "{error}");
    }
}
