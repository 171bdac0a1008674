//! Tests of the metrics through each proxy: only permitted readers get them.

use chart::helm::Version;
use cluster::or_skip;
use installation::metrics::{let_read, scrape, token};

use crate::kit::World;

#[test]
fn metrics_require_reader_role() {
    let Some(world) = World::new(Version::Four) else { return };
    require_reader_role(&world, &["metrics-proxy", "builtin"], &[]);
}

/// The upstream proxy, which takes the place of ours with the same flags.
#[test]
fn kube_rbac_proxy_requires_reader_role() {
    let Some(tag) = or_skip(installation::provide_kube_rbac_proxy()) else { return };
    let Some(world) = World::new(Version::Four) else { return };
    let tag = tag.map(|tag| format!("metrics.proxy.image.tag={tag}"));
    let image = tag.iter().flat_map(|tag| ["--set", tag]).collect::<Vec<_>>();
    require_reader_role(&world, &["kube-rbac-proxy"], &image);
}

fn require_reader_role(world: &World, kinds: &[&str], image: &[&str]) {
    world.upgrade(&[]);
    let (reader, unauthorised) =
        (token(&world.cluster, "reader").unwrap(), token(&world.cluster, "unauthorised").unwrap());
    let_read(&world.cluster, "reader").unwrap();
    let answer = |token: Option<&str>| scrape(&world.cluster, token).unwrap();
    for kind in kinds {
        let kind_of_proxy = format!("metrics.proxy.kind={kind}");
        world.upgrade(&[&["--set", kind_of_proxy.as_str()], image].concat());
        // For a short time, the Service may still route requests to the old pods.
        world.until("only the new pods are left", |world| world.pods().len() == 1);
        let metrics = answer(Some(&reader)).unwrap();
        let families = ["controller_runtime_reconcile_total{", "workqueue_depth{"];
        assert!(families.iter().all(|family| metrics.contains(&format!("\n{family}"))), "{kind}: {metrics}");
        assert_eq!(answer(Some(&unauthorised)), Err(403), "{kind}");
        assert_eq!(answer(None), Err(401), "{kind}");
        assert_eq!(answer(Some("unknown")), Err(401), "{kind}");
    }
}
