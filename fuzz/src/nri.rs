//! Messages of a container runtime over NRI.

use justitia_nri::frame::{Frame, Frames};
use justitia_nri::message::Request;
use justitia_nri::told::{Told, MOST_CONTAINERS, MOST_PODS};
use prost::Message as _;

/// Any bytes as the input of the socket. Nothing panics, the state is bounded, and it does not depend on how
/// the bytes are cut. The first byte is the size of a piece.
pub fn nri(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = told(bytes, bytes.len().max(1));
    let (pods, containers) = whole.pods().count();
    assert!(pods <= MOST_PODS && containers <= MOST_CONTAINERS);
    assert_eq!(told(bytes, usize::from(cut).max(1)).pods(), whole.pods());
}

fn told(bytes: &[u8], cut: usize) -> Told {
    let (mut frames, mut told) = (Frames::default(), Told::default());
    for part in bytes.chunks(cut) {
        let mut messages: Vec<Frame> = Vec::new();
        let refused = frames.push(part, &mut messages).is_err();
        for message in messages {
            if let Ok(request) = Request::decode(message.data.as_slice()) {
                let _ = told.call(&request);
            }
        }
        if refused {
            break;
        }
    }
    told
}
