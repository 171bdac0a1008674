//! The text that Helm shows after an install or an upgrade.

use chart::{NAMESPACE, helm::succeeded};
use controller_manager::OPERATORS;
use serde_json::{Value, json};

use crate::kit::helm;

#[test]
fn notes_mention_only_enabled_operators() {
    let file = helm().values_file(&json!({"operators": {"crontab": {"enabled": false}}})).unwrap();
    let mut command = helm().command();
    command.args(["install", "operators"]).arg(chart::folder()).args(["--dry-run=client", "--namespace", NAMESPACE]);
    let said = succeeded(command.arg("--values").arg(file.path())).unwrap();
    let (_, notes) = said.split_once("\nNOTES:\n").unwrap();
    assert!(
        notes.contains("kind: Memcached") && notes.contains("kubectl wait --for=condition=Ready memcached/"),
        "{notes}"
    );
    assert!(!notes.contains("CronTab"), "{notes}");
    assert!(notes.contains("helm uninstall operators") && !notes.contains("kubectl delete"), "{notes}");
    assert!(notes.contains("Objects of flighttickets.flights.com stand for something outside"), "{notes}");
    assert!(
        notes.find("kubectl get flighttickets") < notes.find("helm uninstall"),
        "only a running operator cancels: {notes}"
    );
    assert_eq!(notes.matches("stand for something outside").count(), 1, "other objects need no running operator");
    assert!(!notes.contains("helm rollback") && !notes.contains("migrate-storage"), "only after an upgrade");
    assert!(notes.contains("get secret operators-booking-certificate"), "{notes}");
    assert!(
        notes.contains(OPERATORS.iter().find(|it| it.name() == "helloapp").unwrap().crds()[0].spec.names.kind.as_str())
    );
}

/// The notes of the chart.
pub(crate) fn notes(values: &Value, arguments: &[&str]) -> String {
    helm().notes(values, arguments).unwrap()
}

#[test]
fn notes_of_a_release_for_all_namespaces_say_that_it_is_the_only_one() {
    let says = |values: Value| {
        notes(&values, &[]).contains("A second release that does this with the same operators is refused.")
    };
    assert!(says(json!({})));
    for narrower in [json!({"watchNamespaces": ["one"]}), json!({"watchNamespaceLabels": {"team": "x"}})] {
        assert!(!says(narrower.clone()), "{narrower}");
    }
    assert!(!says(json!({"rbac": {"create": false}})), "nothing would refuse it");
}

#[test]
fn an_upgrade_says_how_to_go_back_without_loss() {
    let notes = |values: Value| notes(&values, &["--is-upgrade"]);
    let plain = notes(json!({}));
    assert!(plain.contains("do not use `helm rollback`") && plain.contains("--set crds.enabled=false\n"), "{plain}");
    assert!(plain.contains("set crds.enabled=true again"), "later upgrades would reuse the value: {plain}");
    assert!(plain.contains("\n  kubectl operators migrate-storage\n"), "old versions are still stored: {plain}");
    let tagged = notes(json!({"image": {"tag": "v2"}}));
    assert!(tagged.contains("--set crds.enabled=false,image.tag=FORMER-TAG\n"), "{tagged}");
    let pinned = notes(json!({"image": {"tag": "v2", "digest": format!("sha256:{}", "ab".repeat(32))}}));
    assert!(pinned.contains("If you have set image.digest yourself") && !pinned.contains("image.tag="), "{pinned}");

    // Without the annotation, Helm deletes what it no longer renders.
    let unkept = notes(json!({"crds": {"keep": false}}));
    assert!(!unkept.contains("--set crds.enabled=false"), "{unkept}");
    assert!(unkept.contains("WARNING: there is no way back without loss (crds.keep=false)"), "{unkept}");
    assert!(!unkept.contains("crds.enabled=true"), "{unkept}");
    // The finalizers of objects block the deletion of their definition.
    assert!(unkept.contains("delete all of these objects") && !plain.contains("delete all of these"), "{unkept}");
}

#[test]
fn notes_offer_samples_that_become_ready() {
    let limited = notes(&json!({"watchNamespaces": ["one", "two"]}), &[]);
    assert!(limited.contains("kubectl apply --namespace one -f - <<EOF"), "{limited}");
    assert!(limited.contains("kubectl wait --namespace one --for=condition=Ready memcached/"), "{limited}");
    let plain = notes(&json!({}), &[]);
    assert!(plain.contains("kubectl apply -f - <<EOF") && plain.contains("kind: FlightTicket"), "{plain}");
    assert!(
        plain.contains("controller-manager:dev is a local build"),
        "nodes of other machines have no such image: {plain}"
    );
    let pushed = notes(&json!({"image": {"repository": "registry.example.com/operators", "tag": "v1"}}), &[]);
    assert!(!pushed.contains("local build"), "{pushed}");
    let mirrored = notes(&json!({"imageRegistry": "mirror.example.com/hub/"}), &[]);
    let images: Vec<&str> = mirrored.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
    assert!(images.iter().any(|image| image.contains("nginx")), "{mirrored}");
    for image in images {
        let rest = image.strip_prefix("mirror.example.com/hub/").unwrap_or_else(|| panic!("{image}: {mirrored}"));
        assert!(plain.contains(&format!("  image: {rest}\n")), "{image}: only a prefix may differ");
    }
    for values in [
        json!({"bookingServer": {"enabled": false}}), // no provider
        json!({"operators": {"flightticket": {"provider": {"url": "https://booking.example.com"}}}}), // costs money
    ] {
        let notes = notes(&values, &[]);
        assert!(notes.contains("kind: Memcached") && !notes.contains("kind: FlightTicket"), "{values}: {notes}");
    }
}
