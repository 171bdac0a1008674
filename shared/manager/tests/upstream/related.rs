//! Objects that wake a primary although they are not its children: those that a map names, those that the primary refers to, and
//! the keys of a stream.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, CustomResource, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
};
use manager::{
    Action, Context, Controller, ControllerBuilder, Manager, ObjectKey, harness::Harness, normalize, permissions,
};
use model_apiserver::{Model, NoFaults};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};
use workloads::{Viewed, Whole};

use crate::kit::{Calls, MOMENT, NO_RESYNC, TOYS, Toy, Toys, change, labels, model, plan, put, until};

/// A kind that names a Toy, as a route names its gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tests.example.com", version = "v1", kind = "Ribbon", namespaced, derive = "PartialEq")]
struct RibbonSpec {
    toy: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct RibbonView {
    spec: RibbonSpec,
}

impl Viewed for Ribbon {
    type View = RibbonView;
}

/// Starts a controller that only records its calls.
fn start(
    model: &Model,
    calls: &Calls,
    declare: impl Fn(ControllerBuilder<Toy>) -> ControllerBuilder<Toy> + Send + Sync + 'static,
) -> Harness {
    let (clock, calls) = (model.clone(), calls.clone());
    let setup = move |manager: &mut Manager| {
        let calls = calls.clone();
        manager.add(declare(Controller::of::<Toy>()).reconcile(move |toy: Arc<Toy>, _| {
            calls.note(&toy);
            async { Ok(Action::Done) }
        }));
    };
    Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now())
}

async fn set(model: &Model, name: &str, value: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(model.client(), "default");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": value}});
    maps.patch(name, &PatchParams::apply("user"), &Patch::Apply(map)).await.expect("it is accepted");
}

async fn tie(model: &Model, ribbon: &str, toy: &str) {
    let ribbons: Api<Ribbon> = Api::namespaced(model.client(), "default");
    let object = Ribbon::new(ribbon, RibbonSpec { toy: toy.to_owned() });
    ribbons.patch(ribbon, &PatchParams::apply("user"), &Patch::Apply(object)).await.expect("it is accepted");
}

#[tokio::test(start_paused = true)]
async fn change_of_a_referenced_object_wakes_those_that_refer_to_it() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a", "b"]);
    change(&model, "b", 2).await;
    let references = |toy: &Toy| vec![format!("size-{}", toy.spec.size)];
    let _harness = start(&model, &calls, move |it| it.watches_referenced::<Whole<ConfigMap>>(references));
    sleep(MOMENT).await;
    let mut expected = (1, 1);
    let check = |expected: (usize, usize), what: &str| assert_eq!((calls.of("a"), calls.of("b")), expected, "{what}");
    check(expected, "the start");

    set(&model, "size-1", "x").await;
    sleep(MOMENT).await;
    expected.0 += 1;
    check(expected, "a referenced object appears");
    set(&model, "size-1", "y").await;
    let took = until("it changes", || calls.of("a") > expected.0).await;
    assert!(took <= Duration::from_millis(50), "{took:?}");
    expected.0 += 1;
    check(expected, "it changes");
    set(&model, "size-1", "y").await;
    set(&model, "other", "y").await;
    sleep(MOMENT).await;
    check(expected, "nothing that is referenced changes");
    change(&model, "b", 1).await;
    sleep(MOMENT).await;
    expected.1 += 1;
    let maps: Api<ConfigMap> = Api::namespaced(model.client(), "default");
    maps.delete("size-1", &DeleteParams::default()).await.expect("it is deleted");
    sleep(MOMENT).await;
    check((expected.0 + 1, expected.1 + 1), "it is deleted, and both refer to it");
}

/// The cache knows the child from the answer to the write, so the watch event alone is no news.
#[tokio::test(start_paused = true)]
async fn write_of_one_reconcile_wakes_the_others_that_read_the_object() {
    let (model, calls) = (model(), Calls::default());
    plan(&model, "frame * configmaps.core -> delay 100ms");
    put(&model, &["writer", "reader"]);
    let (clock, noted) = (model.clone(), calls.clone());
    let setup = move |manager: &mut Manager| {
        let calls = noted.clone();
        let controller = Controller::of::<Toy>()
            .owns::<ConfigMap>()
            .watches_referenced::<ConfigMap>(|toy: &Toy| {
                vec![if toy.name_any() == "reader" { "writer" } else { "" }.to_owned()]
            })
            .reconcile(move |toy: Arc<Toy>, context: Context<Toy>| {
                calls.note(&toy);
                async move {
                    let metadata = ObjectMeta { name: toy.metadata.name.clone(), ..ObjectMeta::default() };
                    let data = Some([("size".to_owned(), toy.spec.size.to_string())].into());
                    let wanted = (toy.name_any() == "writer" && toy.spec.size < 3).then(|| ConfigMap {
                        metadata,
                        data,
                        ..ConfigMap::default()
                    });
                    context.apply_or_delete(wanted).await?;
                    Ok(Action::Done)
                }
            });
        manager.add(controller);
    };
    let _harness = Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now());
    sleep(MOMENT).await;
    let (writes, reads) = (calls.of("writer"), calls.of("reader"));
    for (n, size) in (1..).zip([2, 3]) {
        change(&model, "writer", size).await;
        sleep(MOMENT).await;
        assert_eq!(calls.of("reader"), reads + n, "size {size}");
        assert_eq!(calls.of("writer"), writes + n, "its own write is no news to the writer");
    }
}

/// The watch delivers no change of an object without our label, so the cache must not answer for it.
#[tokio::test(start_paused = true)]
async fn object_that_the_watch_does_not_select_is_read_anew_each_time() {
    let (model, texts) = (model(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    put(&model, &["a"]);
    set(&model, "theirs", "old").await;
    let (clock, noted) = (model.clone(), texts.clone());
    let setup = move |manager: &mut Manager| {
        let texts = noted.clone();
        let controller = Controller::of::<Toy>().owns::<Whole<ConfigMap>>();
        manager.add(controller.reconcile(move |_: Arc<Toy>, context: Context<Toy>| {
            let texts = texts.clone();
            async move {
                let found = match context.get::<Whole<ConfigMap>>("theirs") {
                    Some(map) => Some(map),
                    None => context.get_uncached::<Whole<ConfigMap>>("theirs").await?,
                };
                texts.lock().push(found.and_then(|map| map.data.as_ref()?.get("text").cloned()));
                Ok(Action::Done)
            }
        }));
    };
    let _harness = Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now());
    sleep(MOMENT).await;
    set(&model, "theirs", "new").await;
    change(&model, "a", 2).await;
    sleep(MOMENT).await;
    assert_eq!(*texts.lock(), ["old", "new"].map(|text| Some(text.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn several_references_to_one_kind_all_count() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a"]);
    let _harness = start(&model, &calls, |it| {
        it.watches_referenced::<Whole<ConfigMap>>(|_| vec!["first".to_owned(), "both".to_owned()])
            .watches_referenced::<Whole<ConfigMap>>(|_| vec!["second".to_owned(), "both".to_owned()])
    });
    sleep(MOMENT).await;
    for (name, expected) in [("first", 2), ("second", 3), ("both", 4), ("other", 4)] {
        set(&model, name, "x").await;
        sleep(MOMENT).await;
        assert_eq!(calls.of("a"), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_a_mapped_object_wakes_the_old_and_the_new_target() {
    let (model, calls) = (model(), Calls::default());
    model.install(&normalize(&Ribbon::crd()));
    put(&model, &["a", "b", "c"]);
    let _harness = start(&model, &calls, |it| {
        it.watches::<Ribbon>(|ribbon| vec![ObjectKey::new(ribbon.namespace.clone(), &*ribbon.view.spec.toy)])
    });
    sleep(MOMENT).await;
    tie(&model, "r", "a").await;
    let took = until("its target is woken", || calls.of("a") > 1).await;
    assert!(took <= Duration::from_millis(50), "{took:?}");
    sleep(MOMENT).await;
    assert_eq!((calls.of("a"), calls.of("b"), calls.of("c")), (2, 1, 1));
    tie(&model, "r", "b").await;
    sleep(MOMENT).await;
    assert_eq!((calls.of("a"), calls.of("b"), calls.of("c")), (3, 2, 1));
    let ribbons: Api<Ribbon> = Api::namespaced(model.client(), "default");
    ribbons.delete("r", &DeleteParams::default()).await.expect("it is deleted");
    sleep(MOMENT).await;
    assert_eq!((calls.of("a"), calls.of("b"), calls.of("c")), (3, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn objects_that_name_the_reconciled_one_are_those_of_a_kind_that_is_watched() {
    let model = model();
    put(&model, &["a"]);
    let clock = model.clone();
    let setup = |manager: &mut Manager| {
        let controller = Controller::of::<Toy>().owns::<ConfigMap>();
        manager.add(controller.reconcile(|_: Arc<Toy>, context: Context<Toy>| async move {
            drop(context.watched::<ConfigMap>());
            Ok(Action::Done)
        }));
    };
    let _harness = Harness::start(&Toys(setup), &[NO_RESYNC], model.client_named("toys"), move || clock.now());
    sleep(10 * MOMENT).await;
    let events = model.objects("events.events.k8s.io");
    let cure = "add .watches::<ConfigMap>(…)";
    assert!(events.iter().any(|event| event["note"].as_str().is_some_and(|it| it.contains(cure))), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn panicking_map_wakes_all_objects() {
    let (model, calls) = (model(), Calls::default());
    model.install(&normalize(&Ribbon::crd()));
    put(&model, &["a", "b"]);
    let _harness = start(&model, &calls, |it| it.watches::<Ribbon>(|_| panic!("an operator's defect")));
    sleep(MOMENT).await;
    tie(&model, "r", "a").await;
    sleep(MOMENT).await;
    assert_eq!((calls.of("a"), calls.of("b")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn stream_wakes_the_objects_that_it_names() {
    let (model, calls) = (model(), Calls::default());
    put(&model, &["a", "b"]);
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Arc::new(parking_lot::Mutex::new(Some(receiver)));
    let _harness = start(&model, &calls, move |it| {
        let receiver = receiver.clone();
        it.wakes_from(move || {
            let mut receiver = receiver.lock().take().expect("one start");
            stream::poll_fn(move |context| receiver.poll_recv(context))
        })
    });
    sleep(MOMENT).await;
    for name in ["a", "a", "unknown"] {
        sender.send(ObjectKey::new("default", name)).expect("it is read");
    }
    let took = until("it is woken", || calls.of("a") > 1).await;
    assert!(took <= Duration::from_millis(50), "{took:?}");
    sleep(MOMENT).await;
    assert_eq!((calls.of("a"), calls.of("b")), (2, 1));
}

/// Nothing takes keys from the queue of a standby.
#[tokio::test(start_paused = true)]
async fn keys_of_unknown_objects_do_not_fill_the_queue_of_a_standby() {
    let model = model();
    put(&model, &["a", "b"]);
    plan(&model, "before * leases.coordination.k8s.io -> drop");
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Arc::new(parking_lot::Mutex::new(Some(receiver)));
    let setup = move |manager: &mut Manager| {
        let receiver = receiver.clone();
        let stream = move || {
            let mut receiver = receiver.lock().take().expect("one start");
            stream::poll_fn(move |context| receiver.poll_recv(context))
        };
        manager.add(Controller::of::<Toy>().wakes_from(stream).reconcile(|_, _| async { Ok(Action::Done) }));
    };
    let send = || {
        for name in (0..1_000).map(|number| format!("unknown-{number}")).chain(["a".to_owned()]) {
            sender.send(ObjectKey::new("default", name)).expect("it is read");
        }
    };
    send(); // before the cache has its first list
    let flags = [NO_RESYNC, "--leader-elect", "--leader-election-namespace=default"];
    let clock = model.clone();
    let harness = Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now());
    sleep(MOMENT).await;
    send();
    sleep(MOMENT).await;
    assert_eq!(depth(&harness), 2, "a and b wait for the process to lead");
}

/// How many keys are ready.
fn depth(harness: &Harness) -> u64 {
    let scrape = harness.scrape();
    let depths = scrape.lines().filter(|line| line.starts_with("workqueue_depth{"));
    depths.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Objects come and go while this process stands by, and labels name others that do not exist.
#[tokio::test(start_paused = true)]
async fn keys_of_objects_that_are_gone_do_not_fill_the_queue_of_a_standby() {
    let (model, calls, gone) = (model(), Calls::default(), Arc::<AtomicUsize>::default());
    put(&model, &["a"]);
    plan(&model, "before * leases.coordination.k8s.io -> drop");
    let (clock, noted, counted) = (model.clone(), calls.clone(), gone.clone());
    let setup = move |manager: &mut Manager| {
        let (calls, gone) = (noted.clone(), counted.clone());
        let controller = Controller::of::<Toy>().owns::<ConfigMap>().on_gone(move |_| {
            gone.fetch_add(1, Ordering::Relaxed);
        });
        manager.add(controller.reconcile(move |toy: Arc<Toy>, _| {
            calls.note(&toy);
            async { Ok(Action::Done) }
        }));
    };
    let flags = ["--resync-interval=10m", "--leader-elect", "--leader-election-namespace=default"];
    let harness = Harness::start(&Toys(setup), &flags, model.client_named("toys"), move || clock.now());
    sleep(MOMENT).await;
    let names: Vec<String> = (0..1_000).map(|number| format!("toy-{number}")).collect();
    put(&model, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for number in 0..100 {
        let labels = labels(&format!("unknown-{number}"));
        let metadata = json!({"name": format!("map-{number}"), "namespace": "default", "labels": labels});
        model.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    }
    sleep(MOMENT).await;
    for name in &names {
        model.take(TOYS, "default", name);
    }
    sleep(MOMENT).await;
    assert_eq!((depth(&harness), gone.load(Ordering::Relaxed)), (1_101, 0));
    sleep(720 * MOMENT).await;
    assert_eq!((depth(&harness), gone.load(Ordering::Relaxed)), (1, 1_100), "a waits for the process to lead");

    // The former keys wake objects again.
    put(&model, &["toy-7", "unknown-7"]);
    sleep(MOMENT).await;
    assert_eq!(depth(&harness), 3);
    model.set_faults(NoFaults);
    sleep(60 * MOMENT).await;
    assert_eq!(["a", "toy-7", "unknown-7"].map(|name| calls.of(name)), [1, 1, 1]);
    assert_eq!((calls.count(), depth(&harness)), (3, 0));
}

#[test]
fn watched_kinds_are_only_listed_and_watched() {
    let setup = |manager: &mut Manager| {
        manager.add(
            Controller::of::<Toy>()
                .watches::<Ribbon>(|_| Vec::new())
                .watches_referenced::<Whole<ConfigMap>>(|_| Vec::new())
                .reconcile(|_, _| async { Ok(Action::Done) }),
        );
    };
    let rules = permissions(&[&Toys(setup)]);
    for resource in ["ribbons", "configmaps"] {
        let rule = rules.iter().find(|rule| rule.resources.iter().flatten().any(|it| it == resource));
        assert_eq!(
            rule.map(|rule| rule.verbs.clone()),
            Some(vec!["list".to_owned(), "watch".to_owned()]),
            "{resource}"
        );
    }
}
