//! Frames detect their own damage and resume after it, in bounded memory.

use super::*;

fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut frames = Frames::new(bytes, 0);
    std::iter::from_fn(|| frames.next().unwrap()).collect()
}

/// A key frame, a frame that builds on it, and a key frame whose contents look like the start of a frame.
fn three() -> (Vec<u8>, [usize; 3]) {
    let first = b"the first of three, and the second is much like it";
    let mut bytes = frame(first, &[]).unwrap();
    let second = bytes.len();
    let like_it = b"the first of three, and the second is much like him";
    bytes.extend(frame(like_it, first).unwrap());
    let third = bytes.len();
    bytes.extend(frame(&FRAME_MAGIC.repeat(2), &[]).unwrap());
    (bytes, [0, second, third])
}

fn contents(pieces: &[Piece]) -> Vec<&[u8]> {
    let frames = pieces.iter().filter_map(|piece| match piece {
        Piece::Frame { contents, .. } => Some(&contents[..]),
        Piece::Unread(_) => None,
    });
    frames.collect()
}

#[test]
fn written_frames_are_read_back_and_repeated_contents_take_fewer_bytes() {
    let (bytes, starts) = three();
    let found = pieces(&bytes);
    assert_eq!(contents(&found).len(), 3);
    for (piece, start) in found.iter().zip(starts) {
        assert!(
            matches!(piece, Piece::Frame { offset, .. } if *offset == start as u64),
            "{piece:?}"
        );
    }
    assert!(starts[2] - starts[1] < starts[1] - 20, "{starts:?}");
}

/// Contents of a step of this many groups, in which every tenth group has another number than in other `rounds`.
fn step_of(groups: u64, round: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in 0..groups {
        let mut number = (group << 8) | if group % 10 == 0 { round } else { 0 };
        for _ in 0..100 {
            // Numbers that do not compress by themselves.
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn data_that_did_not_change_costs_little_in_a_step_of_thousands_of_groups() {
    for groups in [100, 3000] {
        let (before, after) = (step_of(groups, 0), step_of(groups, 1));
        let bytes = [
            frame(&before, &[]).unwrap(),
            frame(&after, &before).unwrap(),
        ];
        let part = bytes[1].len() as f64 / after.len() as f64;
        assert!(
            part < 0.15,
            "{groups} groups of which a tenth changed: {part}"
        );
        assert_eq!(
            contents(&pieces(&bytes.concat())),
            [&before[..], &after[..]]
        );
    }
}

#[test]
fn a_cut_anywhere_leaves_the_frames_before_it() {
    let (bytes, starts) = three();
    for cut in 0..bytes.len() {
        let whole = starts[1..].iter().filter(|&&next| next <= cut).count();
        let found = pieces(&bytes[..cut]);
        assert_eq!(contents(&found).len(), whole, "cut at {cut}");
        let torn = found
            .iter()
            .any(|piece| matches!(piece, Piece::Unread(Note::Torn { .. })));
        assert_eq!(torn, !starts.contains(&cut), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_changes_nothing_or_is_found_and_reading_goes_on_at_the_next_key_frame() {
    let (bytes, starts) = three();
    let intact = pieces(&bytes);
    let mut found_out = 0;
    for bit in 0..starts[2] * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = pieces(&bytes);
        if found == intact {
            // zstd has more than one way to write some contents.
            continue;
        }
        found_out += 1;
        let hit = starts.iter().rposition(|&start| start <= bit / 8).unwrap();
        let damage = Piece::Unread(Note::Damaged {
            offset: starts[hit] as u64,
            bytes: (starts[2] - starts[hit]) as u64,
        });
        assert_eq!(found[..hit], intact[..hit], "bit {bit}");
        assert_eq!(found[hit], damage, "bit {bit}");
        assert_eq!(found[hit + 1..], intact[2..], "bit {bit}");
    }
    assert!(found_out > starts[2] * 8 * 9 / 10, "{found_out} bits");
}

#[test]
fn frames_longer_than_a_read_are_put_together() {
    let mut random = 1_u64;
    let long: Vec<u8> = std::iter::repeat_with(|| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 56) as u8
    })
    .take(300_000)
    .collect();
    let mut bytes = b"noise".to_vec();
    bytes.extend(frame(&long, &[]).unwrap());
    assert!(bytes.len() > 200_000);
    bytes.extend(frame(b"end", &long).unwrap());
    let found = pieces(&bytes);
    assert_eq!(contents(&found), [&long[..], b"end"]);
    let noise = Piece::Unread(Note::Damaged {
        offset: 0,
        bytes: 5,
    });
    assert_eq!(found[0], noise);
}

#[test]
fn a_frame_that_inflates_beyond_the_bound_is_damage() {
    let mut bytes = Compressor::new(1)
        .unwrap()
        .compress(&vec![0; LONGEST + 1])
        .unwrap();
    let bomb = bytes.len();
    assert!(bomb < 2000);
    bytes.extend(frame(b"end", &[]).unwrap());
    let found = pieces(&bytes);
    let damage = Piece::Unread(Note::Damaged {
        offset: 0,
        bytes: bomb as u64,
    });
    assert_eq!(found[0], damage);
    assert_eq!(contents(&found), [b"end"]);
    assert!(frame(&vec![0; LONGEST + 1], &[]).is_err());
    assert!(frame(&vec![0; LONGEST], &[]).is_ok());
}

#[test]
fn a_record_and_its_format_are_known_by_the_preamble() {
    assert_eq!(format_of(&preamble(7)), Some(7));
    assert_eq!(format_of(&preamble(7)[..9]), None);
    assert_eq!(format_of(b"\x89PNG\r\n\x1a\n\0\0\0\0"), None);
}
