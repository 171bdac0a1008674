//! A test of the harness: a kind without any operator behaves on the API server of the tests as on any other.

use std::process::{Command, Stdio};

use cluster::Nodes;
use manager_testing::World;
use serde_json::{Value, json};

const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sample-crd.yaml");

/// Runs kubectl in the world's namespace. Returns its standard output, or its standard error as the error.
async fn kubectl(world: &World, arguments: &[&str], input: Option<&Value>) -> Result<String, String> {
    let mut command: Command = world.cluster.kubectl(arguments);
    command.args(["--namespace", &world.namespace]);
    let input = input.map(ToString::to_string).unwrap_or_default();
    let run = move || {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes())?;
        child.wait_with_output()
    };
    let output = tokio::task::spawn_blocking(run).await.expect("no panic").expect("kubectl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn sample(spec: &Value) -> Value {
    json!({"apiVersion": "stable.example.com/v1alpha", "kind": "Sample", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_prunes_defaults_prints_and_scales_custom_kind() {
    let Some(world) = World::visit("sample", || cluster::Cluster::shared(Nodes::None)).await else { return };
    kubectl(&world, &["apply", "--server-side", "--filename", DEFINITION], None).await.expect("is installed");
    kubectl(&world, &["wait", "--for=condition=Established", "crd/samples.stable.example.com"], None)
        .await
        .expect("is served");

    let misspelt = sample(&json!({"message": "hello", "hoge": 1, "replicas": 2}));
    let created = ["create", "--validate=ignore", "--filename", "-"];
    world.until("the kind is served", async || kubectl(&world, &created, Some(&misspelt)).await.ok()).await;
    let stored =
        kubectl(&world, &["get", "sample", "a", "--output", "jsonpath={.spec}"], None).await.expect("is there");
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(stored, json!({"image": "nginx:latest", "message": "hello", "replicas": 2}), "pruned and defaulted");

    let table = kubectl(&world, &["get", "samples"], None).await.expect("a table");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NAME", "MESSAGE", "AGE"]);
    assert_eq!(words[1][..2], ["a", "hello"]);

    kubectl(&world, &["scale", "sample/a", "--replicas=5"], None).await.expect("is scaled");
    let scaled = kubectl(&world, &["get", "sample", "a", "--output", "jsonpath={.spec.replicas}"], None).await;
    assert_eq!(scaled.as_deref(), Ok("5"));

    let wrong = json!({"apiVersion": "stable.example.com/v1alpha", "kind": "Sample", "metadata": {"name": "b"}, "spec": {"image": 1}});
    let refused = kubectl(&world, &["create", "--validate=ignore", "--filename", "-"], Some(&wrong)).await;
    let says = refused.expect_err("is refused");
    assert!(says.contains("spec.image: Invalid value: \"integer\""), "{says}");
}
