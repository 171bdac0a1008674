//! A foreign object has the name of a child.

use serde_json::{Value, json};

use crate::kit::{Calls, MOMENT, TOYS, keeper, model, put, run, until};

const EVENT: &str = "Resource \"a\" already exists and is not managed by Toy";

fn degraded(toy: &Value) -> Option<&str> {
    let conditions = toy["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == "Degraded" && it["status"] == "True")?["message"].as_str()
}

/// The event has the text of sample-controller, and the condition also says what to do.
#[tokio::test(start_paused = true)]
async fn conflict_says_which_object_it_is_and_what_to_do() {
    let owner = json!([{
        "apiVersion": "tests.example.com/v1", "kind": "Toy", "name": "other", "uid": "u", "controller": true,
    }]);
    let cases = [
        (json!([]), "delete this Service if it is not needed, or use another name"),
        (owner, "the Service belongs to the object \"other\", so use another name"),
    ];
    for (owners, cure) in cases {
        let model = model();
        put(&model, &["a"]);
        model.put(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "namespace": "default", "ownerReferences": owners},
            "spec": {"ports": [{"port": 80}]},
        }));
        let _harness = run(&model, &[], keeper(&Calls::default()));
        let toy = || model.object(TOYS, "default", "a").expect("the object");
        until("the conflict", || degraded(&toy()).is_some()).await;
        assert_eq!(degraded(&toy()), Some(&*format!("{EVENT}; {cure}")));
        tokio::time::sleep(MOMENT).await;
        let events = model.objects("events.events.k8s.io");
        let told = events.iter().find(|event| event["reason"] == "ErrResourceExists").expect("an event");
        assert_eq!(told["note"], EVENT);
    }
}
