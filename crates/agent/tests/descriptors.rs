//! A process that is out of descriptors answers on its socket all the same. A test binary of its own: the bound
//! is the process's.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use justitia_agent::socket::{Board, Server};
use justitia_report::status::Setup;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

#[test]
fn an_agent_out_of_descriptors_answers_one_client_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let setup = Setup::default();
    let _server = Server::listen(&path, Arc::new(Board::new(setup))).unwrap();
    let status = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(b"{\"ask\":\"status\"}\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    // The server has its spare descriptor by now.
    status().unwrap();
    let few = Rlimit {
        current: Some(64),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    // For the client, which is another process in practice.
    drop(taken.pop());
    for _ in 0..3 {
        let answer = status().expect("an answer");
        assert!(answer.starts_with("{\"ok\""), "{answer}");
    }
}
