//! State known from the runtime's calls, and the answer to each call. Pure.

use std::collections::BTreeMap;

use justitia_discover::{Pod, Pods};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use crate::message::{
    event, Configured, Container, Event, PodSandbox, Request, Response, StateChange, Status,
    Synchronize, Synchronized,
};

/// Pods that are kept, at most.
pub const MOST_PODS: usize = 1024;
/// Containers of all pods that are kept, at most.
pub const MOST_CONTAINERS: usize = 8192;
/// Longer IDs of sandboxes and containers are not valid.
const LONGEST_ID: usize = 128;
/// gRPC's code for a method that does not exist.
const UNIMPLEMENTED: i32 = 12;

/// The state known so far.
#[derive(Debug, Default)]
pub struct Told {
    now: Lists,
    /// The parts received so far of a list that comes in several parts.
    coming: Lists,
    /// A whole list has come.
    synchronized: bool,
}

#[derive(Debug, Default)]
struct Lists {
    /// By sandbox: the pod's uid and the pod.
    pods: BTreeMap<String, (String, Pod)>,
    /// By ID: the sandbox and the container's name.
    containers: BTreeMap<String, (String, String)>,
    /// There were more than the bound.
    more: bool,
}

impl Told {
    /// Returns the answer to a call, and whether the call changed what is known.
    ///
    /// # Errors
    /// The call's argument is not what its method takes.
    pub fn call(&mut self, request: &Request) -> Result<(Response, bool), DecodeError> {
        let payload = request.payload.clone();
        let mut changed = true;
        let mut answer = Bytes::new();
        match request.method.as_str() {
            "Configure" => {
                changed = false;
                let events = event::ALL;
                answer = Configured { events }.encode_to_vec().into();
            }
            "Synchronize" => {
                let part = Synchronize::decode(payload)?;
                let more = part.more;
                self.synchronize(part)?;
                changed = !more;
                answer = Synchronized { more }.encode_to_vec().into();
            }
            "StateChange" => {
                let change = StateChange::decode(payload)?;
                self.now.take(change.event, change.pod, change.container);
            }
            "Shutdown" => changed = false,
            method => {
                let told = match method {
                    "RunPodSandbox" => event::RUN_POD,
                    "RemovePodSandbox" => event::REMOVE_POD,
                    "PostCreateContainer" => event::CREATED,
                    "RemoveContainer" => event::REMOVED,
                    _ => return Ok((unimplemented(), false)),
                };
                let Event { pod, container } = Event::decode(payload)?;
                self.now.take(told, pod, container);
            }
        }
        let response = Response {
            status: None,
            payload: answer,
        };
        Ok((response, changed))
    }

    /// Takes a part of the whole list. With its last part, the list replaces what was known.
    fn synchronize(&mut self, part: Synchronize) -> Result<(), DecodeError> {
        for pod in part.pods {
            self.coming.add_pod(PodSandbox::decode(pod)?);
        }
        for container in part.containers {
            self.coming.add_container(Container::decode(container)?);
        }
        if !part.more {
            self.now = std::mem::take(&mut self.coming);
            self.synchronized = true;
        }
        Ok(())
    }

    /// True once the runtime has reported all its pods and containers.
    pub fn is_synchronized(&self) -> bool {
        self.synchronized
    }

    /// True if the runtime reported more than the bound allows to keep.
    pub fn is_full(&self) -> bool {
        self.now.more
    }

    /// The pods and containers that are known now.
    pub fn pods(&self) -> Pods {
        let mut pods = Pods::default();
        for (uid, pod) in self.now.pods.values() {
            pods.add_pod(uid, pod.clone());
        }
        for (id, (sandbox, name)) in &self.now.containers {
            if let Some((uid, _)) = self.now.pods.get(sandbox) {
                pods.add_container(id, uid, name);
            }
        }
        pods
    }
}

impl Lists {
    fn take(&mut self, event: i32, pod: Option<PodSandbox>, container: Option<Container>) {
        match (event, pod, container) {
            (event::RUN_POD, Some(pod), _) => self.add_pod(pod),
            (event::REMOVE_POD, Some(pod), _) => {
                self.pods.remove(&pod.id);
                self.containers.retain(|_, (sandbox, _)| *sandbox != pod.id);
            }
            (event::CREATED, pod, Some(container)) => {
                if let Some(pod) = pod {
                    self.add_pod(pod);
                }
                self.add_container(container);
            }
            (event::REMOVED, _, Some(container)) => {
                self.containers.remove(&container.id);
            }
            _ => {}
        }
    }

    fn add_pod(&mut self, told: PodSandbox) {
        let annotations = told.annotations.iter();
        let annotations = annotations.map(|(key, text)| (key.as_str(), text.as_str()));
        let pod = Pod::new(&told.namespace, &told.name, annotations);
        if let Some(pod) = pod.filter(|_| is_id(&told.id) && is_id(&told.uid)) {
            let pod = (told.uid, pod);
            self.more |= !insert(&mut self.pods, told.id, pod, MOST_PODS);
        }
    }

    fn add_container(&mut self, told: Container) {
        if is_id(&told.id) && is_id(&told.sandbox) && told.name.len() <= LONGEST_ID {
            let container = (told.sandbox, told.name);
            self.more |= !insert(&mut self.containers, told.id, container, MOST_CONTAINERS);
        }
    }
}

/// Inserts an item unless the map is full; returns whether there was room.
fn insert<T>(map: &mut BTreeMap<String, T>, id: String, item: T, most: usize) -> bool {
    let room = map.len() < most || map.contains_key(&id);
    if room {
        map.insert(id, item);
    }
    room
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= LONGEST_ID
}

fn unimplemented() -> Response {
    let status = Status {
        code: UNIMPLEMENTED,
        message: "this plugin only listens".into(),
    };
    Response {
        status: Some(status),
        payload: Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(id: &str) -> PodSandbox {
        let weight = ("justitia.io/weight".to_owned(), "300".to_owned());
        PodSandbox {
            id: id.into(),
            name: format!("name-{id}"),
            uid: format!("uid-{id}"),
            namespace: "shop".into(),
            annotations: [weight].into(),
        }
    }

    fn container(id: &str, sandbox: &str) -> Container {
        Container {
            id: id.into(),
            sandbox: sandbox.into(),
            name: "main".into(),
        }
    }

    fn call(told: &mut Told, method: &str, message: &impl Message) -> (Response, bool) {
        let request = Request {
            service: "nri.pkg.api.v1alpha1.Plugin".into(),
            method: method.into(),
            payload: message.encode_to_vec().into(),
            timeout_nano: 0,
        };
        told.call(&request).unwrap()
    }

    fn list(pods: &[&str], containers: &[(&str, &str)], more: bool) -> Synchronize {
        let pods = pods.iter().map(|id| pod(id).encode_to_vec().into());
        let containers = containers.iter();
        let containers =
            containers.map(|(id, sandbox)| container(id, sandbox).encode_to_vec().into());
        Synchronize {
            pods: pods.collect(),
            containers: containers.collect(),
            more,
        }
    }

    #[test]
    fn a_list_in_parts_counts_when_it_is_whole_and_replaces_what_was_known() {
        let mut told = Told::default();
        call(
            &mut told,
            "Synchronize",
            &list(&["a"], &[("c1", "a")], false),
        );
        assert!(told.pods().container("c1").is_some());
        let (answer, changed) = call(&mut told, "Synchronize", &list(&["b"], &[], true));
        assert!(Synchronized::decode(answer.payload).unwrap().more && !changed);
        assert!(told.pods().pod("uid-a").is_some() && told.pods().pod("uid-b").is_none());
        let (answer, changed) = call(&mut told, "Synchronize", &list(&[], &[("c2", "b")], false));
        assert!(!Synchronized::decode(answer.payload).unwrap().more && changed);
        let pods = told.pods();
        assert_eq!((pods.count(), pods.pod("uid-a")), ((1, 1), None));
        let expected = Pod::new("shop", "name-b", [("justitia.io/weight", "300")]).unwrap();
        assert_eq!(pods.container("c2"), Some((&expected, "main")));
    }

    #[test]
    fn pods_and_containers_come_and_go_by_either_way_of_telling() {
        let mut told = Told::default();
        let (both, only) = (
            (Some(pod("a")), Some(container("c", "a"))),
            (Some(pod("a")), None),
        );
        for (change, method, (pod, container), count) in [
            (event::RUN_POD, "RunPodSandbox", &only, (1, 0)),
            (event::CREATED, "PostCreateContainer", &both, (1, 1)),
            (event::REMOVED, "RemoveContainer", &both, (1, 0)),
            (event::CREATED, "PostCreateContainer", &both, (1, 1)),
            (event::REMOVE_POD, "RemovePodSandbox", &only, (0, 0)),
        ] {
            let mut other = Told {
                now: Lists {
                    pods: told.now.pods.clone(),
                    containers: told.now.containers.clone(),
                    more: false,
                },
                ..Told::default()
            };
            let (pod, container) = (pod.clone(), container.clone());
            let new = Event {
                pod: pod.clone(),
                container: container.clone(),
            };
            let old = StateChange {
                event: change,
                pod,
                container,
            };
            let (answer, changed) = call(&mut told, "StateChange", &old);
            assert!(
                changed && answer == Response::default(),
                "nothing is asked for"
            );
            assert_eq!(call(&mut other, method, &new).0, Response::default());
            assert_eq!((told.pods().count(), other.pods().count()), (count, count));
        }
    }

    #[test]
    fn calls_that_this_plugin_did_not_ask_for_are_unimplemented() {
        let mut told = Told::default();
        for method in [
            "CreateContainer",
            "UpdateContainer",
            "ValidateContainerAdjustment",
            "",
        ] {
            let (answer, changed) = call(&mut told, method, &Event::default());
            assert_eq!(answer.status.unwrap().code, UNIMPLEMENTED);
            assert!(!changed);
        }
        let (answer, _) = call(&mut told, "Configure", &Event::default());
        // RUN_POD_SANDBOX, REMOVE_POD_SANDBOX, POST_CREATE_CONTAINER, REMOVE_CONTAINER: no call that may
        // adjust.
        let events = Configured::decode(answer.payload).unwrap().events;
        assert_eq!(events, 0b100_0001_0101);
    }

    #[test]
    fn the_list_of_pods_has_a_bound_and_says_when_it_is_full() {
        let mut told = Told::default();
        for number in 0..=MOST_PODS {
            assert!(!told.is_full());
            let (pod, container) = (Some(pod(&number.to_string())), None);
            call(&mut told, "RunPodSandbox", &Event { pod, container });
        }
        assert!(told.is_full());
        assert_eq!(told.pods().count().0, MOST_PODS);
        let unnamed = PodSandbox {
            name: "\u{1b}[2J".into(),
            ..pod("x")
        };
        let mut told = Told::default();
        let (pod, container) = (Some(unnamed), None);
        call(&mut told, "RunPodSandbox", &Event { pod, container });
        assert_eq!(told.pods().count(), (0, 0));
    }

    proptest! {
        #[test]
        fn no_argument_panics(
            method in "Configure|Synchronize|StateChange|Shutdown|RunPodSandbox|RemoveContainer|x",
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let request = Request { method, payload: payload.into(), ..Request::default() };
            let _ = Told::default().call(&request);
        }
    }
}
