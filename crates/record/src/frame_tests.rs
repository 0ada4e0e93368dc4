//! Frames find their own damage and the way on.

use super::*;

fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut frames = Frames::new(bytes, 0);
    std::iter::from_fn(|| frames.next().unwrap()).collect()
}

fn three() -> (Vec<u8>, [usize; 3]) {
    let mut bytes = frame(KEY, CRITICAL, b"first");
    let second = bytes.len();
    bytes.extend(frame(DELTA, CRITICAL, &[]));
    let third = bytes.len();
    // A payload that looks like the start of frames.
    bytes.extend(frame(DELTA, CRITICAL, &[0xf7, 0x4a, 0xf7, 0x4a]));
    (bytes, [0, second, third])
}

fn payloads(pieces: &[Piece]) -> Vec<&[u8]> {
    let frames = pieces.iter().filter_map(|piece| match piece {
        Piece::Frame { payload, .. } => Some(&payload[..]),
        _ => None,
    });
    frames.collect()
}

#[test]
fn what_was_written_is_read() {
    let (bytes, starts) = three();
    let found = pieces(&bytes);
    assert_eq!(found.len(), 3);
    for (piece, start) in found.iter().zip(starts) {
        let Piece::Frame { offset, flags, .. } = piece else {
            panic!("{piece:?}")
        };
        assert_eq!((*offset, *flags), (start as u64, CRITICAL));
    }
}

#[test]
fn a_cut_anywhere_leaves_the_frames_before_it() {
    let (bytes, starts) = three();
    for cut in 0..bytes.len() {
        let whole = starts[1..].iter().filter(|&&next| next <= cut).count();
        let found = pieces(&bytes[..cut]);
        assert_eq!(payloads(&found).len(), whole, "cut at {cut}");
        let torn = found
            .iter()
            .any(|piece| matches!(piece, Piece::Torn { .. }));
        assert_eq!(torn, !starts.contains(&cut), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_the_rest_is_read() {
    let (bytes, starts) = three();
    for bit in 0..starts[2] * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = pieces(&bytes);
        let damage: Vec<&Piece> = found
            .iter()
            .filter(|piece| !matches!(piece, Piece::Frame { .. }))
            .collect();
        let hit = starts.iter().rposition(|&start| start <= bit / 8).unwrap();
        let expected = Piece::Damaged {
            offset: starts[hit] as u64,
            bytes: (starts[hit + 1] - starts[hit]) as u64,
        };
        assert_eq!(damage, [&expected], "bit {bit}");
        assert_eq!(payloads(&found).len(), 2, "bit {bit}");
    }
}

#[test]
fn a_length_beyond_the_end_hides_nothing_behind_it() {
    let (mut bytes, starts) = three();
    bytes[starts[1] + 6] = 1;
    let found = pieces(&bytes);
    assert_eq!(payloads(&found).len(), 2);
    assert!(matches!(found[1], Piece::Damaged { .. }), "{found:?}");
}

#[test]
fn frames_longer_than_a_read_are_put_together() {
    let long: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let mut bytes = b"noise".to_vec();
    bytes.extend(frame(KEY, 0, &long));
    bytes.extend(frame(KEY, 0, b"end"));
    let found = pieces(&bytes);
    assert_eq!(payloads(&found), [&long[..], b"end"]);
    assert_eq!(
        found[0],
        Piece::Damaged {
            offset: 0,
            bytes: 5
        }
    );
}

#[test]
fn the_preamble_tells_a_record_and_its_format() {
    assert_eq!(format_of(&preamble(7)), Some(7));
    assert_eq!(format_of(&preamble(7)[..9]), None);
    assert_eq!(format_of(b"\x89PNG\r\n\x1a\n\0\0\0\0"), None);
}
