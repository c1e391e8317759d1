//! Decodes `null` as Go does: the value is the default of its type.

use serde::{Deserialize, Deserializer};

/// Decodes `null` as the default value.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<T, D::Error> {
    Option::deserialize(d).map(Option::unwrap_or_default)
}

/// Decodes a `null` list as an empty one, and `null` items as default values.
pub(crate) fn null_items_are_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    let items: Vec<Option<T>> = null_is_default(d)?;
    Ok(items.into_iter().map(Option::unwrap_or_default).collect())
}
