//! An informer of several namespaces: one that fails does not hold up the others, and namespaces join and leave.

use super::*;

#[tokio::test(start_paused = true)]
async fn w22_namespace_that_cannot_be_listed_does_not_hold_up_the_others() {
    for (answer, says) in
        [("403", "may not list or watch pods in namespace b: "), ("503", "cannot reach pods in namespace b: ")]
    {
        let model = faulty(&format!("before list pods.core b/* -> answer {answer}"));
        put_pod(&model, "a", "one", 1);
        put_pod(&model, "b", "two", 1);
        let namespaces = Namespaces::Named(["a", "b", "c"].map(str::to_owned).into());
        let (informer, _running) = inform(model.client(), namespaces);
        timeout(seconds(10), informer.health.until_partly_synced()).await.expect("the other namespaces");
        sleep(seconds(10)).await;
        let coverage = |namespace| informer.coverage(namespace);
        let [complete, failing] = [Coverage::Complete, Coverage::Failing];
        assert_eq!(["a", "b", "c", ""].map(coverage), [complete, failing, complete, failing], "{answer}");
        assert!(informer.is_synced("a") && !informer.is_synced("b") && !informer.is_synced(""), "{answer}");
        assert!(holds(&informer, "a", "one"), "{answer}");
        let told = informer.health.phase().describe("pods");
        assert!(told.starts_with(says), "{told}");
        timeout(seconds(60), informer.list_for(1, "a")).await.expect("a list of the other namespace");
        assert!(timeout(seconds(60), informer.list_for(1, "b")).await.is_err(), "{answer}");
        assert_eq!(timeout(seconds(1), informer.try_list_for(1, "a")).await, Ok(Ok(())), "{answer}");
        match timeout(seconds(1), informer.try_list_for(1, "b")).await {
            Ok(refused) => assert!(answer == "403" && refused.is_err_and(|why| why.starts_with(says)), "{answer}"),
            Err(_) => assert_eq!(answer, "503", "a failure may end in a moment, a refusal does not"),
        }

        model.set_faults(NoFaults);
        informer.health.until_synced().await;
        assert_eq!(["a", "b", "c", ""].map(coverage), [Coverage::Complete; 4], "{answer}");
        assert!(holds(&informer, "b", "two"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_with_the_same_error_are_counted() {
    let model = faulty("before list pods.core -> answer 403");
    let (informer, _running) = inform(model.client(), Namespaces::Named(["a", "b"].map(str::to_owned).into()));
    sleep(seconds(1)).await;
    let told = informer.health.phase().describe("pods");
    assert!(told.contains(" in namespace ") && told.ends_with("; 2 namespaces have such an error"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn recovery_counts_although_another_namespace_was_never_listed() {
    let model = faulty("before list pods.core b/* -> answer 403");
    let (informer, _running) = inform(model.client(), Namespaces::Named(["a", "b"].map(str::to_owned).into()));
    let (health, mut known) = (&informer.health, Vec::new());
    sleep(seconds(10)).await;
    assert!(timeout(seconds(1), health.until_back(&mut known, false)).await.is_err(), "the first list is no recovery");
    assert_eq!(timeout(seconds(1), health.until_back(&mut Vec::new(), true)).await, Ok(vec!["a".to_owned()]));
    model.set_faults(Planned::new(
        &"before * pods.core -> answer 503; frame * pods.core -> gone".parse().expect("a plan"),
    ));
    put_pod(&model, "a", "one", 1); // its event ends the watch
    sleep(seconds(10)).await;
    assert!(!informer.is_synced("a"));
    model.set_faults(Planned::new(&"before list pods.core b/* -> answer 403".parse().expect("a plan")));
    assert_eq!(timeout(seconds(10), health.until_back(&mut known, false)).await, Ok(vec!["a".to_owned()]));
    assert!(informer.is_synced("a"));
    assert!(timeout(seconds(60), health.until_back(&mut known, false)).await.is_err(), "once");
}

/// Neither another error nor the list of another namespace says that the kind is back in this one.
#[tokio::test(start_paused = true)]
async fn kind_is_missing_in_a_namespace_until_that_is_listed() {
    let (model, names) = (faulty(""), ["a", "b", "c"]);
    for namespace in names {
        put_pod(&model, namespace, "one", 1);
    }
    let (informer, _running) = inform(model.client(), Namespaces::Named(names.map(str::to_owned).into()));
    informer.health.require(); // the back-off of an optional kind is long
    informer.health.until_synced().await;
    let missing = || names.map(|namespace| informer.is_missing(namespace));
    let installed = || names.map(|namespace| informer.is_installed(namespace));
    assert_eq!((missing(), installed()), ([false; 3], [true; 3]));

    let fail = |plan: &str| model.set_faults(Planned::new(&plan.parse().expect("a plan")));
    fail("before * pods.core -> answer 404; frame * pods.core -> gone");
    for namespace in names {
        put_pod(&model, namespace, "two", 1); // its event ends the watch
    }
    sleep(seconds(10)).await;
    assert_eq!((missing(), installed()), ([true; 3], [false; 3]));
    for answer in [503, 403] {
        fail(&format!("before * pods.core -> answer {answer}"));
        sleep(seconds(10)).await;
        assert_eq!((missing(), installed()), ([true; 3], [false; 3]), "{answer}");
    }
    let mut known = Vec::new();
    fail("before list pods.core b/* -> answer 403; before list pods.core c/* -> answer 503");
    sleep(seconds(10)).await;
    assert_eq!((missing(), installed()), ([false, true, true], [true, false, false]));
    assert!(!informer.health.is_missing(), "one namespace shows that the kind exists");
    assert_eq!(timeout(seconds(1), informer.health.until_back(&mut known, false)).await, Ok(vec!["a".to_owned()]));
    fail("before list pods.core c/* -> answer 503");
    assert_eq!(timeout(seconds(10), informer.health.until_back(&mut known, false)).await, Ok(vec!["b".to_owned()]));
    assert_eq!((missing(), installed()), ([false, false, true], [true, true, false]));
}

#[tokio::test(start_paused = true)]
async fn w23_namespace_joins_although_the_watch_keeps_failing() {
    for answer in [403, 429] {
        let plan = format!("after watch pods.core #1 -> cut 1; before watch pods.core #2..1000 -> answer {answer}");
        let (model, selected) = (faulty(&plan), Arc::new(SelectedNamespaces::default()));
        put_pod(&model, "late", "one", 1);
        select(&selected, &["default"]);
        let (informer, _running) = inform(model.client(), Namespaces::Selected(selected.clone()));
        informer.health.until_synced().await;
        sleep(seconds(1)).await;
        put_pod(&model, "default", "other", 1); // its event ends the watch
        sleep(seconds(30)).await;
        assert_ne!(informer.health.phase(), Phase::Synced, "{answer}");
        assert_eq!(asked(&model, Verb::List), 1, "{answer}: such a refusal causes no list");
        select(&selected, &["default", "late"]);
        sleep(seconds(15)).await;
        assert_eq!(informer.coverage("late"), Coverage::Complete, "{answer}");
        assert!(holds(&informer, "late", "one"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn w23_namespace_whose_label_flaps_causes_few_lists() {
    let (model, selected) = (faulty(""), Arc::new(SelectedNamespaces::default()));
    put_pod(&model, "flapping", "one", 1);
    select(&selected, &["default"]);
    let (informer, _running) = inform(model.client(), Namespaces::Selected(selected.clone()));
    informer.health.until_synced().await;
    for round in 0..1_000 {
        let names: &[&str] = if round % 2 == 0 { &["default", "flapping"] } else { &["default"] };
        select(&selected, names);
        sleep(Duration::from_millis(10)).await;
        if round == 500 {
            put_pod(&model, "default", "other", 1);
            sleep(Duration::from_millis(100)).await;
            assert!(holds(&informer, "default", "other"), "the events of other namespaces do not wait");
        }
    }
    let lists = asked(&model, Verb::List);
    assert!((3..20).contains(&lists), "{lists} lists in 10 s");
    select(&selected, &["default", "flapping"]);
    assert_eq!(informer.coverage("flapping"), Coverage::Pending);
    sleep(seconds(6)).await;
    assert_eq!(informer.coverage("flapping"), Coverage::Complete);
    assert!(holds(&informer, "flapping", "one"), "the last state of the label holds");
    sleep(seconds(60)).await;
    select(&selected, &["default", "flapping", "late"]);
    sleep(Duration::from_millis(250)).await;
    assert_eq!(informer.coverage("late"), Coverage::Complete, "a single change waits only for a moment");
}

/// The event of the write arrives after its namespace has left. Without the event, the next one would look like a restore.
#[tokio::test(start_paused = true)]
async fn w23_write_in_a_namespace_that_leaves_shows_no_restore() {
    let (model, selected) = (faulty(""), Arc::new(SelectedNamespaces::default()));
    select(&selected, &["default", "leaving"]);
    let (informer, _running) = inform(model.client(), Namespaces::Selected(selected.clone()));
    informer.health.until_synced().await;
    sleep(seconds(1)).await;
    put_pod(&model, "leaving", "ours", 1);
    let answer = model.object("pods", "leaving", "ours").expect("a pod").to_string();
    let writer = Writer { controller: 0, key: ObjectKey::new("leaving", "primary") };
    assert!(informer.observe(&Decoded::read::<Projected<Pod>>(&answer).expect("a name"), writer));
    select(&selected, &["default"]);
    put_pod(&model, "default", "other", 1);
    sleep(Duration::from_millis(50)).await;
    assert!(holds(&informer, "default", "other"), "the list that follows the change is not due yet");
    assert_eq!((informer.alarm.count(), asked(&model, Verb::List)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn w23_list_completes_although_a_namespace_flaps_meanwhile() {
    let (model, selected) = (faulty("before list pods.core -> delay 3s"), Arc::new(SelectedNamespaces::default()));
    put_pod(&model, "default", "one", 1);
    select(&selected, &["default"]);
    let (informer, _running) = inform(model.client(), Namespaces::Selected(selected.clone()));
    for round in 0..10 {
        let names: &[&str] = if round % 2 == 0 { &["default", "flapping"] } else { &["default"] };
        select(&selected, names);
        sleep(seconds(1)).await;
    }
    assert!(holds(&informer, "default", "one"));
}
