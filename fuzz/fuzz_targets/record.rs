//! Any bytes as the frames of a record: nothing panics, and every tick that comes out can be
//! replayed and encoded again. The first byte chooses: as they are, or as payloads of valid frames
//! (a checksum is not found by chance).
#![no_main]

use justitia_record::{Encoder, Item, Options, Reader, Replayer};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else {
        return;
    };
    let mut record = Encoder::preamble();
    if how & 1 == 0 {
        record.extend(bytes);
    } else {
        for payload in bytes.split(|&byte| byte == 0xff) {
            let kind = payload.first().map_or(2, |byte| 1 + byte % 4);
            record.extend(Encoder::frame_around(kind, payload));
        }
    }
    let Ok(reader) = Reader::new(&record[..], "fuzz") else {
        return;
    };
    let mut replayer = Replayer::new(Options::as_recorded());
    let mut encoder = Encoder::new();
    for item in reader.flatten() {
        match item {
            Item::Session(_) => replayer.session(),
            Item::Note(_) => replayer.lost(),
            Item::Tick(tick) => {
                encoder.tick(&tick).expect("what was read can be written");
                replayer.step(*tick);
            }
            Item::End => {}
        }
    }
});
