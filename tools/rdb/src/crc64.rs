//! The checksum of files and payloads: CRC-64 of Jones, reflected, without inversion.

/// Its polynomial, 0xad93d23594c935a9, reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
/// Bytes that are looked up at once.
const LANES: usize = 8;

const TABLES: [[u64; 256]; LANES] = tables();

const fn tables() -> [[u64; 256]; LANES] {
    let mut tables = [[0; 256]; LANES];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut lane = 1;
    while lane < LANES {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[lane - 1][byte];
            tables[lane][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        lane += 1;
    }
    tables
}

/// A checksum of bytes that come in pieces.
///
/// ```
/// let mut crc = farcore_rdb::Crc64::default();
/// crc.add(b"12345");
/// crc.add(b"6789");
/// assert_eq!(crc.value(), 0xe9c6_d914_c4b8_d9ca);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crc64(u64);

impl Crc64 {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let mut words = bytes.chunks_exact(LANES);
        for word in &mut words {
            let mut lanes = [0; LANES];
            lanes.copy_from_slice(word);
            let mixed = (crc ^ u64::from_le_bytes(lanes)).to_le_bytes();
            crc = 0;
            for (lane, byte) in mixed.into_iter().enumerate() {
                crc ^= TABLES[LANES - 1 - lane][usize::from(byte)];
            }
        }
        for &byte in words.remainder() {
            let [low, ..] = crc.to_le_bytes();
            crc = (crc >> 8) ^ TABLES[0][usize::from(low ^ byte)];
        }
        self.0 = crc;
    }

    /// The checksum of what was added.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1000).collect();
        let mut whole = Crc64::default();
        whole.add(&bytes);
        for piece in [1, 3, 7, 8, 9, 333] {
            let mut crc = Crc64::default();
            bytes.chunks(piece).for_each(|piece| crc.add(piece));
            assert_eq!(crc, whole);
        }
        assert_eq!(Crc64::default().value(), 0);
    }
}
