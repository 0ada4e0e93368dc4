//! CRC-32C (Castagnoli), the checksum of the frames: finds every error of up to 32 bits in a row.

const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut sum = i as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (if sum & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        table[i] = sum;
        i += 1;
    }
    table
};

/// The checksum of these pieces, one after the other.
pub(crate) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().copied().flatten();
    !bytes.fold(!0, |sum, byte| {
        (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_checksum_that_others_call_crc32c() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[b"12345", b"6789"]), 0xe306_9283);
    }
}
