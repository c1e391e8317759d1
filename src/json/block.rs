//! Compares 64 bytes in one step.
//!
//! The result is a `u64` with one bit for each byte of the block. Block byte `8 * k + j` has bit
//! `k` of result byte `j`: for example, block byte 9 has bit 1 of result byte 1. The compiler
//! builds this order with a few vector operations of sixteen bytes on any x86-64. The next byte of
//! the block is in the next byte of the result; after byte 7 comes byte 0, one bit higher.

pub(super) const BLOCK: usize = 64;

pub(super) type Block = [u8; BLOCK];

const BYTES: u64 = 0x0101_0101_0101_0101;

/// Returns a bit for each byte for which `predicate` is true.
#[inline]
pub(super) fn lanes(block: &Block, predicate: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| if predicate(byte) { 0xff } else { 0 });
    let (eights, _) = flags.as_chunks::<8>();
    (0..8).fold(0, |all, k| all | u64::from_le_bytes(eights[k]) & BYTES << k)
}

/// Returns the bytes that these backslashes escape, and whether the first byte after the block is
/// escaped. `before` is whether the first byte of the block is escaped.
#[inline]
pub(super) fn escaped(backslashes: u64, before: bool) -> (u64, bool) {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = u64::from(before);
    let behind = backslashes << 8 | backslashes >> 56 << 1 & 0xff | first;
    if backslashes & behind == 0 {
        return (behind, backslashes >> 63 == 1);
    }
    // Every other backslash of a run escapes. If a bit is added at the start of a run, the carry
    // moves to the end of the run. This separates runs that start at even bytes from those that
    // start at odd bytes.
    let backslashes = in_order(backslashes) & !first;
    let behind = backslashes << 1 | first;
    let begin_odd = backslashes & !EVEN & !behind;
    let (runs, carry) = backslashes.overflowing_add(begin_odd);
    (in_order((EVEN ^ runs << 1) & behind), carry)
}

/// Returns the bytes inside strings with these quotes. A string includes its opening quote but not
/// its closing quote. `before` is whether the block starts inside a string. Also returns whether
/// the block ends inside a string.
#[inline]
pub(super) fn toggled(lanes: u64, before: bool) -> (u64, bool) {
    // First, the strings within each group of eight bytes, as if each group started outside a
    // string.
    let mut odd = lanes ^ lanes << 8;
    odd ^= odd << 16;
    odd ^= odd << 32;
    // Then, whether each group starts inside a string, which depends on the groups before it.
    let mut eights = odd >> 56 << 1 | u64::from(before);
    eights ^= eights << 1;
    eights ^= eights << 2;
    eights ^= eights << 4;
    eights ^= eights << 8;
    let earlier = (eights & 0xff) * BYTES;
    (odd ^ earlier, eights >> 8 & 1 == 1)
}

/// Sorts the bits into the order of the bytes, the first byte lowest. This transposes a matrix of
/// eight by eight bits, so a second call reverts it.
#[inline]
pub(super) fn in_order(lanes: u64) -> u64 {
    [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ]
    .into_iter()
    .fold(lanes, |lanes, (by, mask)| {
        let moved = (lanes ^ lanes >> by) & mask;
        lanes ^ moved ^ moved << by
    })
}
