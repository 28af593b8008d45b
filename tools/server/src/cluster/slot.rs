//! The slot of a key: CRC16 of its hash tag, or of the whole key, modulo [`SLOTS`].
//!
//! Source: the specification of Redis Cluster, "Key distribution model" and appendix A.

/// Slots of a cluster.
pub const SLOTS: usize = 16_384;

/// Characters of a word that an error repeats.
const REPEATED_MAX: usize = 64;

/// The bits of a slot.
const SLOT_MASK: u16 = 0x3fff;

const _: () = assert!(SLOTS == SLOT_MASK as usize + 1);

/// CRC-16/XMODEM of each byte.
static CRC16: [u16; 256] = {
    const POLYNOMIAL: u16 = 0x1021;
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc >> 15;
            crc = (crc << 1) ^ (carry * POLYNOMIAL);
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let [high, _] = crc.to_be_bytes();
        (crc << 8) ^ CRC16[usize::from(high ^ byte)]
    })
}

/// What of a key decides its slot: what lies between its first brace and the next closing one,
/// unless that is nothing.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let behind = &key[open + 1..];
    match behind.iter().position(|byte| *byte == b'}') {
        Some(bytes @ 1..) => &behind[..bytes],
        _ => key,
    }
}

/// A word as an error repeats it.
pub(super) fn repeated(word: &str) -> String {
    word.chars().take(REPEATED_MAX).collect()
}

/// The first and the last slot of `FIRST-LAST`, or of one slot alone.
///
/// # Errors
/// It is no range of slots.
pub(super) fn parse_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let bound = |text: &str| {
        let slot = text.parse::<u16>().ok();
        slot.filter(|slot| usize::from(*slot) < SLOTS)
    };
    let bounds = bound(first).zip(bound(last));
    let bounds = bounds.filter(|(first, last)| first <= last);
    bounds.ok_or_else(|| {
        format!(
            "'{}' must be a slot or FIRST-LAST of 0 to {}",
            repeated(text),
            SLOTS - 1
        )
    })
}

/// The slot of a key.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) & SLOT_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The vector of the specification, and what Redis 7.0.15 replies to CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("bar", 5_061),
            ("123456789", 12_739),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("{hash_tag}bar", 2_515),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn the_first_tag_decides_unless_it_is_empty() {
        for (key, decides) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo}{bar", "foo}{bar"),
            ("{", "{"),
            ("{}", "{}"),
        ] {
            assert_eq!(tag(key.as_bytes()), decides.as_bytes(), "{key}");
        }
    }
}
