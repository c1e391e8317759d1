//! Generated names and UIDs, from random numbers.

/// Returns a UUID of version 4 from two random numbers.
pub(crate) fn uuid(a: u64, b: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0x3fff | 0x8000,
        b & 0xffff_ffff_ffff
    )
}

/// Returns the suffix for a `generateName`: five characters that form no words.
pub(crate) fn name_suffix(mut random: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letter = || {
        let letter = LETTERS[(random % LETTERS.len() as u64) as usize];
        random /= LETTERS.len() as u64;
        char::from(letter)
    };
    (0..5).map(|_| letter()).collect()
}
