//! Metrics through the proxy, for those who may read them.

use chart::helm::Version;
use e2e::metrics::{let_read, scrape, token};

use crate::kit::World;

#[test]
fn metrics_are_for_those_with_the_role_of_readers() {
    let Some(world) = World::new(Version::Four) else { return };
    world.upgrade(&[]);
    let (reader, stranger) = (token(&world.cluster, "reader").unwrap(), token(&world.cluster, "stranger").unwrap());
    let_read(&world.cluster, "reader").unwrap();
    let answer = |token: Option<&str>| scrape(&world.cluster, token).unwrap();
    for kind in ["metrics-proxy", "builtin"] {
        world.upgrade(&["--set", &format!("metrics.proxy.kind={kind}")]);
        // The pods of before may be asked a little longer.
        world.until("the new pods alone are asked", |world| world.pods().len() == 1);
        let metrics = answer(Some(&reader)).unwrap();
        let families = ["controller_runtime_reconcile_total{", "workqueue_depth{"];
        assert!(families.iter().all(|family| metrics.contains(&format!("\n{family}"))), "{kind}: {metrics}");
        assert_eq!(answer(Some(&stranger)), Err(403), "{kind}");
        assert_eq!(answer(None), Err(401), "{kind}");
        assert_eq!(answer(Some("nobody's")), Err(401), "{kind}");
    }
}
