//! Reads DER, the binary form of certificates and keys.

/// A sequence of DER elements. Iterates over the tag and the content of each.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BIT_STRING: u8 = 0x03;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;

    /// Returns the elements of a sequence. They are none if it is something else.
    pub(super) fn sequence(bytes: &'a [u8]) -> Self {
        Self(Self(bytes).element(Self::SEQUENCE).unwrap_or_default())
    }

    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next element if it has this tag. Returns its content.
    pub(super) fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut after = *self;
        let (_, content) = after.next().filter(|next| next.0 == tag)?;
        *self = after;
        Some(content)
    }
}

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Lengths of 16 MiB and above do not occur.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes
                    .iter()
                    .fold(0, |length, byte| length << 8 | usize::from(*byte));
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}
