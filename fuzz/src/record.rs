//! Records of the policy's inputs.

use justitia_record::{Encoder, Item, Options, Reader, Replayer, Tick};

/// Any bytes as the frames of a record. Nothing panics, and every tick that is read can be replayed and
/// encoded again. The first byte chooses between the bytes as they are, and the bytes as payloads of valid
/// frames (a checksum is not found by chance).
pub fn record(bytes: &[u8]) {
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
    let mut again = Again::new();
    for item in reader.flatten() {
        match item {
            Item::Session(_) => again.replayer.session(),
            Item::Note(_) => again.replayer.lost(),
            Item::Tick(tick) => again.tick(*tick),
            Item::End => {}
        }
    }
}

/// Encodes and replays the ticks that were read.
pub(crate) struct Again {
    encoder: Encoder,
    replayer: Replayer<'static>,
}

impl Again {
    pub(crate) fn new() -> Again {
        Again {
            encoder: Encoder::new(),
            replayer: Replayer::new(Options::as_recorded()),
        }
    }

    pub(crate) fn tick(&mut self, tick: Tick) {
        self.encoder
            .tick(&tick)
            .expect("what was read can be written");
        self.replayer.step(tick);
    }
}
