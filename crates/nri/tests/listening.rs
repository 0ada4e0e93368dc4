//! The listener with a runtime that comes, goes and misbehaves.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use justitia_nri::frame::{Frame, Frames, PLUGIN, REQUEST, RESPONSE, RUNTIME};
use justitia_nri::message::{
    event, Container, PodSandbox, RegisterPlugin, Request, Response, StateChange, Status,
    Synchronize,
};
use justitia_nri::Listener;
use prost::Message;
use tempfile::TempDir;

/// A runtime's side of the socket.
struct Runtime {
    dir: TempDir,
    listener: UnixListener,
}

/// A connected plugin.
struct Plugin {
    stream: UnixStream,
    frames: Frames,
    messages: Vec<Frame>,
    stream_id: u32,
}

impl Runtime {
    fn new() -> Runtime {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("nri.sock")).unwrap();
        Runtime { dir, listener }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("nri.sock")
    }

    fn accept(&self) -> Plugin {
        Plugin {
            stream: self.listener.accept().unwrap().0,
            frames: Frames::default(),
            messages: Vec::new(),
            stream_id: 1,
        }
    }

    /// Acts as a runtime: registers the plugin, configures it, and reports one pod to it.
    fn accept_well(&self, name: &str) -> Plugin {
        let mut plugin = self.accept();
        let request = plugin.receive();
        assert_eq!((request.connection, request.kind), (RUNTIME, REQUEST));
        let call = Request::decode(request.data.as_slice()).unwrap();
        assert_eq!(call.service, "nri.pkg.api.v1alpha1.Runtime");
        assert_eq!(call.method, "RegisterPlugin");
        let registered = RegisterPlugin::decode(call.payload).unwrap();
        assert_eq!(
            (registered.name.as_str(), registered.index.as_str()),
            ("justitia", "90")
        );
        plugin.answer(&request, &Response::default());
        plugin.call("Configure", &());
        let pods = vec![pod(name).encode_to_vec().into()];
        let list = Synchronize {
            pods,
            ..Synchronize::default()
        };
        plugin.call("Synchronize", &list);
        plugin
    }
}

impl Plugin {
    fn receive(&mut self) -> Frame {
        let mut buffer = [0; 4096];
        while self.messages.is_empty() {
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "the plugin went away");
            self.frames
                .push(&buffer[..length], &mut self.messages)
                .unwrap();
        }
        self.messages.remove(0)
    }

    fn answer(&mut self, request: &Frame, response: &Response) {
        let data = response.encode_to_vec();
        let answer = Frame {
            kind: RESPONSE,
            data,
            ..request.clone()
        };
        self.stream.write_all(&answer.encode()).unwrap();
    }

    fn call(&mut self, method: &str, message: &impl Message) {
        let request = Request {
            service: "nri.pkg.api.v1alpha1.Plugin".into(),
            method: method.into(),
            payload: message.encode_to_vec().into(),
            timeout_nano: 0,
        };
        self.stream_id += 2;
        let frame = Frame {
            connection: PLUGIN,
            stream: self.stream_id,
            kind: REQUEST,
            data: request.encode_to_vec(),
        };
        self.stream.write_all(&frame.encode()).unwrap();
        let answer = self.receive();
        assert_eq!(
            (answer.connection, answer.stream, answer.kind),
            (PLUGIN, self.stream_id, RESPONSE)
        );
        assert_eq!(
            Response::decode(answer.data.as_slice()).unwrap().status,
            None
        );
    }
}

fn pod(name: &str) -> PodSandbox {
    PodSandbox {
        id: format!("sandbox-{name}"),
        name: name.into(),
        uid: format!("uid-{name}"),
        namespace: "shop".into(),
        ..PodSandbox::default()
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Waits until the condition holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "never: {what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn pods_are_known_as_the_runtime_tells_them_and_while_it_is_restarted() {
    let runtime = Runtime::new();
    let listener = Listener::start(&runtime.socket(), true).unwrap();
    let mut plugin = runtime.accept_well("db");
    listener.settle(LONG);
    assert!(listener.pods().pod("uid-db").is_some());
    let before = listener.pods();
    let container = Container {
        id: "c".into(),
        sandbox: "sandbox-db".into(),
        name: "main".into(),
    };
    let change = StateChange {
        event: event::CREATED,
        pod: Some(pod("db")),
        container: Some(container),
    };
    plugin.call("StateChange", &change);
    until("its container is known", || {
        listener.pods().container("c").is_some()
    });
    assert_eq!(
        before.count(),
        (1, 0),
        "what was handed out does not change"
    );
    // At least as long as a restart takes.
    drop(plugin);
    until("the runtime is missed", || listener.problem().is_some());
    assert!(listener.pods().container("c").is_some());
    let _plugin = runtime.accept_well("web");
    until("only web is known", || {
        listener.pods().pod("uid-db").is_none()
    });
    assert!(listener.pods().pod("uid-web").is_some());
    assert_eq!(listener.problem(), None);
}

#[test]
fn nobody_at_the_socket_is_a_problem_only_where_the_configuration_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nri.sock");
    let required = Listener::start(&socket, true).unwrap();
    let optional = Listener::start(&socket, false).unwrap();
    required.settle(LONG);
    optional.settle(LONG);
    let problem = required.problem().unwrap();
    assert!(
        problem
            .cause
            .ends_with("nri.sock does not report pods: nobody listens there"),
        "{}",
        problem.cause
    );
    assert_eq!(optional.problem(), None);
    assert_eq!(optional.pods().count(), (0, 0));
}

#[test]
fn nonsense_and_refusals_are_one_line_and_the_connection_ends() {
    let long = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    let data = vec![0xff; 40];
    let garbled = Frame {
        connection: PLUGIN,
        stream: 1,
        kind: REQUEST,
        data,
    }
    .encode();
    let code = 3;
    let status = Some(Status {
        code,
        message: "no \u{1b}[2J\nplugins".into(),
    });
    let data = Response {
        status,
        ..Response::default()
    }
    .encode_to_vec();
    let refused = Frame {
        connection: RUNTIME,
        stream: 1,
        kind: RESPONSE,
        data,
    }
    .encode();
    for (bytes, words) in [
        (
            &long[..],
            "it does not speak NRI (a frame of 4294967295 bytes)",
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "it does not speak NRI (a frame of 791752241 bytes)",
        ),
        (&garbled, "it does not speak NRI (a message cannot be read)"),
        (&refused, "it refuses the plugin (no \\u{1b}[2J\\nplugins)"),
    ] {
        let runtime = Runtime::new();
        let listener = Listener::start(&runtime.socket(), false).unwrap();
        let mut plugin = runtime.accept();
        plugin.stream.write_all(bytes).unwrap();
        until(words, || listener.problem().is_some());
        let cause = listener.problem().unwrap().cause;
        assert!(cause.ends_with(words), "{cause}");
        let mut rest = Vec::new();
        let _ = plugin.stream.read_to_end(&mut rest);
    }
}

#[test]
fn a_runtime_that_says_nothing_keeps_nobody_waiting() {
    let runtime = Runtime::new();
    let listener = Listener::start(&runtime.socket(), true).unwrap();
    let mut plugin = runtime.accept();
    plugin.receive();
    assert_eq!(listener.pods().count(), (0, 0));
    drop(listener);
    let mut rest = Vec::new();
    let ended = plugin.stream.read_to_end(&mut rest);
    assert_eq!(ended.unwrap(), 0, "the connection ends with the listener");
}
