//! Shows that kube-leader-election 0.44.0 lets two candidates acquire one lease.
//!
//! The API server is a minimal one in memory. Like a real one, it refuses a write that names a version other than the current
//! one. Both candidates read the expired lease before either of them writes; this is enough for two leaders.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tokio::sync::Barrier;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let lease = Arc::new(Mutex::new(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "manager", "namespace": "operators", "resourceVersion": "1"},
        "spec": {
            "holderIdentity": "crashed", "leaseDurationSeconds": 15, "leaseTransitions": 1,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    })));
    let both_looked = Arc::new(Barrier::new(2));
    let candidate = |name: &'static str| {
        let (lease, both_looked) = (lease.clone(), both_looked.clone());
        async move {
            let parameters = LeaseLockParams {
                holder_id: name.to_owned(),
                lease_name: "manager".to_owned(),
                lease_ttl: Duration::from_secs(15),
            };
            let lock = LeaseLock::new(client(lease, both_looked), "operators", parameters);
            matches!(lock.try_acquire_or_renew().await, Ok(LeaseLockResult::Acquired(_)))
        }
    };
    let (a, b) = tokio::join!(candidate("a"), candidate("b"));
    let holder = lease.lock().expect("no panic")["spec"]["holderIdentity"].clone();
    println!("a acquired: {a}, b acquired: {b}, the lease says: {holder}");
    println!("{}", if a && b { "TWO LEADERS" } else { "one leader" });
}

fn client(lease: Arc<Mutex<Value>>, both_looked: Arc<Barrier>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (lease, both_looked) = (lease.clone(), both_looked.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let reply = if parts.method == Method::GET {
                let seen = lease.lock().expect("no panic").clone();
                both_looked.wait().await;
                (200, seen)
            } else {
                write(&mut lease.lock().expect("no panic"), &serde_json::from_slice(&body)?)
            };
            let mut response = Response::new(Full::new(Bytes::from(reply.1.to_string())));
            *response.status_mut() = reply.0.try_into()?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    Client::new(service, "operators")
}

/// Applies a merge patch, or refuses it if it names a version other than the current one.
fn write(lease: &mut Value, patch: &Value) -> (u16, Value) {
    let version = lease["metadata"]["resourceVersion"].clone();
    let known = &patch["metadata"]["resourceVersion"];
    if !known.is_null() && *known != version {
        let status =
            json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "modified"});
        return (409, status);
    }
    println!("{} writes over version {version} and names version {known}", patch["spec"]["holderIdentity"]);
    merge(lease, patch);
    let next = version.as_str().and_then(|version| version.parse::<u64>().ok()).unwrap_or_default() + 1;
    lease["metadata"]["resourceVersion"] = json!(next.to_string());
    (200, lease.clone())
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(fields), Some(changes)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (name, change) in changes {
        merge(fields.entry(name).or_insert(Value::Null), change);
    }
}
