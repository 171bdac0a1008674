//! Alarms of a restored cluster: none is lost because another one came shortly before, and many of them cause few lists.

use k8s_openapi::api::core::v1::ConfigMap;
use workloads::Viewed;

use super::*;

type Of<C> = Arc<Informer<Projected<C>>>;

/// A running informer of a kind, with this alarm.
fn inform_with<C: Viewed>(model: &Model, alarm: &Arc<RestoreAlarm>) -> (Of<C>, JoinHandle<()>) {
    let informer = Arc::new(Informer::<Projected<C>>::new(Namespaces::All, alarm.clone()));
    let running = informer.clone().run(model.client(), Rng::new(), Selection::All, CancellationToken::new());
    (informer, tokio::spawn(running))
}

/// Raises the alarm, as the read of a pod does that contradicts the cache.
fn contradict(pods: &Pods) {
    pods.check_absence(Some(u64::MAX), &ObjectKey::new("default", "absent"), Uid::of("some"), 1);
}

fn put_map(model: &Model, name: &str) {
    model.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}));
}

/// Which of these config maps the cache holds.
fn held<const N: usize>(maps: &Of<ConfigMap>, names: [&str; N]) -> [bool; N] {
    names.map(|name| maps.store.get(&ObjectKey::new("default", name)).is_some())
}

/// The first alarm is false: its lists are from before the restore. The versions of the restored cluster overtake those that the
/// informer of config maps knows, so its watch continues as if nothing had happened.
#[tokio::test(start_paused = true)]
async fn w13_restore_shortly_after_a_false_alarm_is_not_missed() {
    let (model, alarm) = (faulty(""), Arc::<RestoreAlarm>::default());
    let (pods, _watched_pods) = inform_with::<Pod>(&model, &alarm);
    let (maps, _watched_maps) = inform_with::<ConfigMap>(&model, &alarm);
    pods.health.until_synced().await;
    maps.health.until_synced().await;
    sleep(seconds(1)).await;
    contradict(&pods);
    sleep(seconds(5)).await;
    let (backup, names) = (model.snapshot(), ["undone", "first", "second"]);
    put_map(&model, "undone");
    sleep(seconds(4)).await;
    model.restore(&backup);
    put_map(&model, "first"); // it has the version of the config map that the restore has undone
    put_map(&model, "second");
    sleep(seconds(1)).await;
    contradict(&pods);
    sleep(seconds(19)).await;
    assert_eq!((alarm.count(), held(&maps, names)), (1, [true, false, true]), "the alarm is put off");
    sleep(seconds(2)).await;
    assert_eq!((alarm.count(), held(&maps, names)), (2, [false, true, true]));
    sleep(seconds(600)).await;
    assert_eq!(alarm.count(), 2, "it counts once");
}

/// An API server whose answers differ each time raises the alarm with each answer.
#[tokio::test(start_paused = true)]
async fn storm_of_alarms_causes_few_lists() {
    let (model, alarm) = (faulty(""), Arc::<RestoreAlarm>::default());
    let (pods, _watched_pods) = inform_with::<Pod>(&model, &alarm);
    let (maps, _watched_maps) = inform_with::<ConfigMap>(&model, &alarm);
    pods.health.until_synced().await;
    maps.health.until_synced().await;
    for _ in 0..3_600 {
        contradict(&pods);
        sleep(seconds(1)).await;
    }
    assert_eq!((alarm.count(), asked(&model, Verb::List)), (10, 2 + 2 * 10), "in an hour");
    sleep(seconds(1_600)).await;
    let calm = alarm.count();
    contradict(&pods);
    contradict(&pods);
    assert_eq!(alarm.count(), calm + 1);
    sleep(seconds(31)).await;
    assert_eq!(alarm.count(), calm + 2, "after a quiet time, the second alarm waits for 30 seconds");
}

/// As if another thread raised the alarm while this one decodes the last page.
#[tokio::test(start_paused = true)]
async fn alarm_during_the_end_of_a_list_is_heard() {
    let (model, alarm) = (faulty(""), Arc::<RestoreAlarm>::default());
    put_pod(&model, "default", "one", 1);
    let pods = Arc::new(Informer::<Projected<Pod>>::new(Namespaces::All, alarm.clone()));
    pods.subscribe(Box::new(move |_, _| assert_eq!(alarm.raise(), Some(Duration::ZERO), "the pod is news once")));
    let _running = tokio::spawn(pods.clone().run(model.client(), Rng::new(), Selection::All, CancellationToken::new()));
    pods.health.until_synced().await;
    sleep(seconds(1)).await;
    assert_eq!((pods.alarm.count(), asked(&model, Verb::List)), (1, 2));
}

/// The restore comes between the lists that a false alarm causes: the informer of config maps has listed, that of pods has not.
#[tokio::test(start_paused = true)]
async fn w13_restore_that_a_late_list_shows_is_not_missed() {
    let (model, alarm) = (faulty("before list pods.core #2 -> delay 20s"), Arc::<RestoreAlarm>::default());
    put_pod(&model, "default", "changed", 1);
    let (backup, names) = (model.snapshot(), ["undone", "first", "second", "third"]);
    put_pod(&model, "default", "changed", 2);
    put_map(&model, "undone");
    let (pods, _watched_pods) = inform_with::<Pod>(&model, &alarm);
    let (maps, _watched_maps) = inform_with::<ConfigMap>(&model, &alarm);
    pods.health.until_synced().await;
    maps.health.until_synced().await;
    contradict(&pods);
    sleep(seconds(10)).await;
    model.restore(&backup);
    for name in ["first", "second", "third"] {
        put_map(&model, name); // the second one has the version that the informer of config maps knows
    }
    sleep(seconds(5)).await;
    assert_eq!(held(&maps, names), [true, false, false, true], "its watch continues");
    sleep(seconds(20)).await;
    assert_eq!((alarm.count(), held(&maps, names)), (2, [false, true, true, true]));
}
