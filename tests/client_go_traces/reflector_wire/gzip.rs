//! A minimal decoder for gzip (RFC 1951 and 1952) and base64. The traces contain a few compressed
//! bodies and store them as base64.

/// Returns the content of a gzip file without optional fields, or `None`. Ignores the checksum.
pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits {
        bytes: packed.strip_prefix(&[0x1f, 0x8b, 8, 0])?.get(6..)?,
        at: 0,
    };
    let mut out = Vec::new();
    loop {
        let is_last = bits.take(1)?;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out)?,
            1 => {
                let lengths: Vec<u8> = [(8, 144), (9, 112), (7, 24), (8, 8)]
                    .iter()
                    .flat_map(|&(l, n)| vec![l; n])
                    .collect();
                compressed(
                    &mut bits,
                    &mut out,
                    &Huffman::new(&lengths),
                    &Huffman::new(&[5; 30]),
                )?;
            }
            2 => {
                let (literals, distances) = dynamic(&mut bits)?;
                compressed(&mut bits, &mut out, &literals, &distances)?;
            }
            _ => return None,
        }
        if is_last == 1 {
            return Some(out);
        }
    }
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut value = 0;
        for bit in 0..count {
            value |= usize::from(self.bytes.get(self.at / 8)? >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(value)
    }
}

/// A canonical Huffman code: the number of codes of each length, and the symbols in code order.
struct Huffman {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Huffman {
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; 16];
        lengths
            .iter()
            .for_each(|&length| counts[usize::from(length)] += 1);
        counts[0] = 0;
        let mut symbols: Vec<usize> = (0..lengths.len())
            .filter(|&symbol| lengths[symbol] > 0)
            .collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        Self { counts, symbols }
    }

    fn decode(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code |= bits.take(1)?;
            if code < first + count {
                return self.symbols.get(index + code - first).copied();
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>) -> Option<()> {
    bits.at = bits.at.next_multiple_of(8);
    let length = bits.take(16)?;
    bits.take(16)?;
    for _ in 0..length {
        out.push(bits.take(8)?.try_into().ok()?);
    }
    Some(())
}

fn dynamic(bits: &mut Bits<'_>) -> Option<(Huffman, Huffman)> {
    const ORDER: [usize; 19] = [
        16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
    ];
    let (literals, distances, codes) = (bits.take(5)? + 257, bits.take(5)? + 1, bits.take(4)? + 4);
    let mut lengths = [0; 19];
    for &place in &ORDER[..codes] {
        lengths[place] = bits.take(3)?.try_into().ok()?;
    }
    let code_lengths = Huffman::new(&lengths);
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (length, times) = match code_lengths.decode(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length.try_into().ok()?, 1),
        };
        lengths.extend(std::iter::repeat_n(length, times));
    }
    Some((
        Huffman::new(&lengths[..literals]),
        Huffman::new(lengths.get(literals..)?),
    ))
}

fn compressed(
    bits: &mut Bits<'_>,
    out: &mut Vec<u8>,
    literals: &Huffman,
    distances: &Huffman,
) -> Option<()> {
    loop {
        let length = match literals.decode(bits)? {
            literal @ 0..256 => {
                out.push(literal.try_into().ok()?);
                continue;
            }
            256 => return Some(()),
            symbol @ 257..265 => symbol - 254,
            symbol @ 265..285 => {
                let extra = (symbol - 261) / 4;
                3 + ((4 + (symbol - 265) % 4) << extra) + bits.take(extra)?
            }
            285 => 258,
            _ => return None,
        };
        let distance = match distances.decode(bits)? {
            symbol @ 0..4 => symbol + 1,
            symbol @ 4..30 => {
                let extra = symbol / 2 - 1;
                1 + ((2 + symbol % 2) << extra) + bits.take(extra)?
            }
            _ => return None,
        };
        for _ in 0..length {
            out.push(*out.get(out.len().checked_sub(distance)?)?);
        }
    }
}

pub(super) fn base64(encoded: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> = encoded
        .bytes()
        .filter_map(|byte| DIGITS.iter().position(|&digit| digit == byte))
        .map(|digit| digit.try_into().unwrap())
        .collect();
    let group = |group: &[u32]| {
        let bits = group
            .iter()
            .chain(&[0; 3])
            .take(4)
            .fold(0, |bits, digit| bits << 6 | digit);
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[test]
fn valid_gzip_is_unpacked_and_invalid_data_rejected() {
    // `packed` is the output of `printf 'hello hello hello\n' | gzip -n`. `stored` contains a
    // stored block.
    let packed = base64("H4sIAAAAAAAAA8tIzcnJV8hAkFwAO3yK3xIAAAA=");
    assert_eq!(
        unpack(&packed).as_deref(),
        Some(&b"hello hello hello\n"[..])
    );
    let stored = [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 0, 0xfd, 0xff][..],
        b"hi",
    ]
    .concat();
    assert_eq!(unpack(&stored).as_deref(), Some(&b"hi"[..]));
    assert_eq!(unpack(b"{}"), None);
    assert_eq!(unpack(&packed[..packed.len() - 12]), None);
}
