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
