//! A block of bytes, looked at together. What is to be known of each of them is a bit in a `u64`: bit `k` of
//! its byte `j` is that of byte `8 * k + j`. So nothing but comparisons and ORs puts the bits together, which
//! the compiler does for sixteen bytes at once on any x86-64; and the bits of neighbours stand in
//! neighbouring bytes.

pub(super) const BLOCK: usize = 64;

pub(super) type Block = [u8; BLOCK];

const BYTES: u64 = 0x0101_0101_0101_0101;

/// Of which bytes this is so.
#[inline]
pub(super) fn lanes(block: &Block, is_so: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| if is_so(byte) { 0xff } else { 0 });
    let (eights, _) = flags.as_chunks::<8>();
    (0..8).fold(0, |all, k| all | u64::from_le_bytes(eights[k]) & BYTES << k)
}

/// Which bytes these backslashes escape, and whether they escape the one behind the block. The one before it
/// may escape the first byte.
#[inline]
pub(super) fn escaped(backslashes: u64, before: bool) -> (u64, bool) {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = u64::from(before);
    let behind = backslashes << 8 | backslashes >> 56 << 1 & 0xff | first;
    if backslashes & behind == 0 {
        return (behind, backslashes >> 63 == 1);
    }
    // Of a run every other one escapes. To add a bit to where a run begins carries it to where that ends; so
    // runs are told apart by whether they begin at an even or at an odd byte.
    let backslashes = in_order(backslashes) & !first;
    let behind = backslashes << 1 | first;
    let begin_odd = backslashes & !EVEN & !behind;
    let (runs, carry) = backslashes.overflowing_add(begin_odd);
    (in_order((EVEN ^ runs << 1) & behind), carry)
}

/// Which bytes stand between an odd one of these and the next one, that odd one included, or before the first
/// one if so it was `before`; and whether that goes on behind the block.
#[inline]
pub(super) fn toggled(lanes: u64, before: bool) -> (u64, bool) {
    // Each with those before it in its eight.
    let mut odd = lanes ^ lanes << 8;
    odd ^= odd << 16;
    odd ^= odd << 32;
    // Then with all eights before its own.
    let mut eights = odd >> 56 << 1 | u64::from(before);
    eights ^= eights << 1;
    eights ^= eights << 2;
    eights ^= eights << 4;
    eights ^= eights << 8;
    let earlier = (eights & 0xff) * BYTES;
    (odd ^ earlier, eights >> 8 & 1 == 1)
}

/// With the bit of the first byte as the lowest, and so on: rows and columns of eight by eight bits change
/// places; once more, and they are as before.
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
