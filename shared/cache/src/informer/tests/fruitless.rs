//! Watches that begin, and then deliver nothing. A list shows what they miss.

use super::*;

/// A proxy that lets no event pass. The silence of each watch ends only by its time-out.
#[tokio::test(start_paused = true)]
async fn w12_cache_follows_although_every_watch_is_silent() {
    let (model, informer, _running) = at_work("after watch pods.core -> stall");
    sleep(seconds(10)).await;
    for name in ["one", "two"] {
        put_pod(&model, "default", name, 1);
        sleep(seconds(240)).await;
        assert!(holds(&informer, "default", name), "{name}");
    }
    assert_eq!(asked(&model, Verb::List), 3, "one list for each silence");
}

/// The network drops the packets of a watch. Meanwhile the cluster is restored, and its versions overtake those that the cache knows.
#[tokio::test(start_paused = true)]
async fn w13_restore_during_a_silent_watch_is_not_missed() {
    let model = faulty("after watch pods.core #1 -> stall");
    let backup = model.snapshot();
    put_pod(&model, "default", "undone", 1);
    let (informer, _running) = inform(model.client(), Namespaces::All);
    informer.health.until_synced().await;
    sleep(seconds(1)).await;
    let names = ["undone", "first", "second"];
    let held = || names.map(|name| holds(&informer, "default", name));
    assert_eq!(held(), [true, false, false]);
    model.restore(&backup);
    for name in ["first", "second"] {
        put_pod(&model, "default", name, 1); // the first one has the version of the pod that the restore has undone
    }
    sleep(seconds(240)).await;
    assert_eq!(held(), [false, true, true]);
}

/// A proxy cuts the connection in the middle of an event or damages it, or the API server cannot encode it and ends the watch. The
/// next watch begins with the same event.
#[tokio::test(start_paused = true)]
async fn w29_event_that_ends_each_watch_does_not_hide_later_ones() {
    for plan in [
        "frame ADDED pods.core default/long -> truncate 20",
        r#"frame ADDED pods.core default/long -> replace "{\"type\": 3}""#,
        "after watch pods.core -> cut",
        "before watch pods.core -> delay 2s; frame ADDED pods.core default/long -> truncate 20",
    ] {
        let (model, informer, _running) = at_work(plan);
        informer.health.until_synced().await;
        sleep(seconds(10)).await;
        for name in ["long", "short"] {
            put_pod(&model, "default", name, 1);
        }
        sleep(seconds(30)).await;
        assert_eq!(["long", "short"].map(|name| holds(&informer, "default", name)), [true, true], "{plan}");
        sleep(seconds(300)).await;
        assert_eq!(asked(&model, Verb::List), 2, "{plan}: after one list, the watch continues behind the event");
    }
}

#[tokio::test(start_paused = true)]
async fn w29_watches_that_end_at_once_cause_few_lists() {
    let (model, informer, _running) = at_work("before watch pods.core -> answer 200 empty");
    informer.health.until_synced().await;
    put_pod(&model, "default", "one", 1);
    sleep(seconds(600)).await;
    assert!(holds(&informer, "default", "one"));
    let lists = asked(&model, Verb::List);
    assert!((20..=50).contains(&lists), "{lists} lists in ten minutes");
}
