//! Crashes of the operator at its writes: rows A1 to A4 of `RELIABILITY.md`.

use std::sync::Arc;

use fault_plan::{Plan, Request, enumerate};
use model_apiserver::{NoFaults, Planned};
use tokio::{sync::Notify, time::sleep};

use crate::kit::{Calls, MOMENT, keeper, model, put, run, settles, writes};

/// All possible crashes at the writes of an object's life: before each write, after it, and after its answer.
async fn crashes() -> Vec<Plan> {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keeper(&Calls::default()));
    settles(&model, "without a fault").await;
    let asked = model.requests().into_iter().filter(|it| it.client == "toys" && it.verb.writes());
    let asked = asked.filter(|it| !it.resource.starts_with("events")); // names of events differ in each run
    let record: Vec<_> = asked.map(|it| Request::from(&it)).collect();
    enumerate::crashes(&record)
}

/// Runs an object's life with these crashes, one after the other. The second crash may find no request to happen at.
async fn crashed(plans: &[&Plan]) {
    let what = plans.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then ");
    let model = model();
    put(&model, &["a"]);
    for (number, crash) in plans.iter().enumerate() {
        let killed = Arc::new(Notify::new());
        let told = killed.clone();
        let planned = Planned::with_signals(crash, move |_| {
            told.notify_one();
            Box::pin(std::future::pending())
        });
        model.set_faults(planned);
        let running = run(&model, &[], keeper(&Calls::default()));
        tokio::select! {
            () = killed.notified() => {}
            () = sleep(600 * MOMENT), if number > 0 => {}
        }
        running.crash().await;
    }
    model.set_faults(NoFaults);
    let _last = run(&model, &[], keeper(&Calls::default()));
    settles(&model, &what).await;
    let made = |it: &&(&str, String, Option<u16>)| it.0 == "create" && it.1 == "services" && it.2 == Some(201);
    assert_eq!(writes(&model).iter().filter(made).count(), 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a1_a2_a3_a_crash_at_any_write_leaves_no_second_child() {
    let plans = crashes().await;
    assert!(plans.len() >= 6, "{plans:?}");
    for plan in &plans {
        crashed(&[plan]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a4_two_crashes_at_any_two_writes_leave_no_second_child() {
    let plans = crashes().await;
    for first in &plans {
        for second in &plans {
            crashed(&[first, second]).await;
        }
    }
}
