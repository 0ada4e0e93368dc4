//! Frames of the multiplexer, and frames of ttrpc within them. Pure.
//!
//! Multiplexer: connection and length, four bytes each, then `length` bytes of that connection. ttrpc
//! (protocol 1.0): length and stream, four bytes each, type, flags, then `length` bytes. Numbers are
//! big-endian. A frame of one kind need not begin where one of the other kind does.

/// The connection over which the runtime calls the plugin.
pub const PLUGIN: u32 = 1;
/// The connection over which the plugin calls the runtime.
pub const RUNTIME: u32 = 2;

/// The type of a call's frame.
pub const REQUEST: u8 = 1;
/// The type of an answer's frame.
pub const RESPONSE: u8 = 2;

const OUTER: usize = 8;
const INNER: usize = 10;
/// The longest message that ttrpc accepts.
const LONGEST: usize = 4 << 20;

/// Reason why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than both protocols allow.
    #[error("a frame of {0} bytes")]
    TooLong(usize),
    /// A plugin has no such connection.
    #[error("a frame for connection {0}")]
    NoConnection(u32),
}

/// One ttrpc message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// [`PLUGIN`] or [`RUNTIME`].
    pub connection: u32,
    /// The call that it belongs to.
    pub stream: u32,
    /// [`REQUEST`] or [`RESPONSE`].
    pub kind: u8,
    pub data: Vec<u8>,
}

impl Frame {
    /// The bytes on the socket. None of our messages needs more than one frame of the multiplexer.
    pub fn encode(&self) -> Vec<u8> {
        let length = |bytes: usize| (bytes as u32).to_be_bytes();
        let mut bytes = Vec::with_capacity(OUTER + INNER + self.data.len());
        bytes.extend(self.connection.to_be_bytes());
        bytes.extend(length(INNER + self.data.len()));
        bytes.extend(length(self.data.len()));
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend([self.kind, 0]);
        bytes.extend(&self.data);
        bytes
    }
}

/// Assembles frames from bytes as they come. Holds less than two of the longest messages.
#[derive(Debug, Default)]
pub struct Frames {
    outer: Vec<u8>,
    /// The bytes of each connection that are not a whole message yet.
    inner: [Vec<u8>; 2],
}

impl Frames {
    /// Takes bytes, and appends the messages that they complete.
    pub fn push(&mut self, bytes: &[u8], messages: &mut Vec<Frame>) -> Result<(), FrameError> {
        self.outer.extend(bytes);
        let mut at = 0;
        while let Some((connection, length)) = header(&self.outer[at..], OUTER) {
            if length as usize > INNER + LONGEST {
                return Err(FrameError::TooLong(length as usize));
            }
            let begin = at + OUTER;
            let Some(part) = self.outer.get(begin..begin + length as usize) else {
                break;
            };
            at = begin + part.len();
            let inner = match connection {
                PLUGIN => &mut self.inner[0],
                RUNTIME => &mut self.inner[1],
                _ => return Err(FrameError::NoConnection(connection)),
            };
            inner.extend(part);
            take_messages(connection, inner, messages)?;
        }
        self.outer.drain(..at);
        Ok(())
    }
}

fn take_messages(
    connection: u32,
    bytes: &mut Vec<u8>,
    messages: &mut Vec<Frame>,
) -> Result<(), FrameError> {
    let mut at = 0;
    while let Some((length, stream)) = header(&bytes[at..], INNER) {
        let length = length as usize;
        if length > LONGEST {
            return Err(FrameError::TooLong(length));
        }
        let begin = at + INNER;
        let Some(data) = bytes.get(begin..begin + length) else {
            break;
        };
        messages.push(Frame {
            connection,
            stream,
            kind: bytes[at + 8],
            data: data.to_vec(),
        });
        at = begin + length;
    }
    bytes.drain(..at);
    Ok(())
}

/// The two numbers at the start of a header of `length` bytes, if the header is complete.
fn header(bytes: &[u8], length: usize) -> Option<(u32, u32)> {
    let (first, rest) = bytes.get(..length)?.split_first_chunk()?;
    let second = rest.first_chunk()?;
    Some((u32::from_be_bytes(*first), u32::from_be_bytes(*second)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_frame()(
            connection in PLUGIN..=RUNTIME, stream in any::<u32>(), kind in any::<u8>(),
            data in prop::collection::vec(any::<u8>(), 0..300),
        ) -> Frame {
            Frame { connection, stream, kind, data }
        }
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_and_in_order_however_their_bytes_are_cut(
            sent in prop::collection::vec(any_frame(), 0..8), cut in 1..40usize,
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(Frame::encode).collect();
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            for part in bytes.chunks(cut) {
                frames.push(part, &mut got).unwrap();
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn the_part_of_random_bytes_that_is_kept_has_a_bound(parts in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..64), 0..64,
        )) {
            let (mut frames, mut got, mut pushed) = (Frames::default(), Vec::new(), 0);
            for part in &parts {
                pushed += part.len();
                if frames.push(part, &mut got).is_err() {
                    break;
                }
                let kept = frames.outer.len() + frames.inner.iter().map(Vec::len).sum::<usize>();
                prop_assert!(kept <= pushed.min(2 * (LONGEST + INNER + OUTER)));
            }
        }
    }

    #[test]
    fn a_message_may_come_in_several_frames_of_the_multiplexer() {
        let frame = Frame {
            connection: PLUGIN,
            stream: 3,
            kind: REQUEST,
            data: vec![7; 9],
        };
        let whole = frame.encode();
        let mut bytes = Vec::new();
        for part in whole[OUTER..].chunks(4) {
            bytes.extend(PLUGIN.to_be_bytes());
            bytes.extend((part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
        let (mut frames, mut got) = (Frames::default(), Vec::new());
        frames.push(&bytes, &mut got).unwrap();
        assert_eq!(got, [frame]);
    }

    #[test]
    fn a_length_beyond_the_protocol_is_refused_before_it_is_kept() {
        let mut got = Vec::new();
        let mut outer = PLUGIN.to_be_bytes().to_vec();
        outer.extend(u32::MAX.to_be_bytes());
        let refused = Frames::default().push(&outer, &mut got);
        assert_eq!(refused, Err(FrameError::TooLong(u32::MAX as usize)));
        let mut inner = Frame {
            connection: PLUGIN,
            stream: 1,
            kind: REQUEST,
            data: Vec::new(),
        }
        .encode();
        inner[OUTER..OUTER + 4].copy_from_slice(&(5u32 << 20).to_be_bytes());
        let refused = Frames::default().push(&inner, &mut got);
        assert_eq!(refused, Err(FrameError::TooLong(5 << 20)));
        let other = [0, 0, 0, 9, 0, 0, 0, 0];
        let refused = Frames::default().push(&other, &mut got);
        assert_eq!(refused, Err(FrameError::NoConnection(9)));
    }
}
