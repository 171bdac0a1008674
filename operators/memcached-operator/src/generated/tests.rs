use super::*;
use crate::samples;

fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

#[test]
fn passwords_are_made_once_and_follow_what_a_user_writes() {
    let made = |stored: &[(&str, &str)]| passwords(&values(stored), || "random".to_owned());
    let fresh = values(&[("username", "memcached"), ("password", "random"), ("password-file", "memcached:random\n")]);
    assert_eq!(made(&[]), fresh);
    let echoed = made(&[("username", "memcached"), ("password", "mine\n")]);
    assert_eq!(echoed, values(&[("password", "mine"), ("password-file", "memcached:mine\n")]));
    let kept: &[_] = &[("username", "memcached"), ("password", "mine"), ("password-file", "memcached:mine\n")];
    assert_eq!(made(kept), Values::new());
    let given: &[_] =
        &[("username", "shop"), ("password", "s:cret"), ("password-file", "memcached:old\n"), ("note", "x")];
    assert_eq!(made(given), values(&[("password-file", "shop:s:cret\n")]));
    for unusable in ["", "two words", "two\nlines", "ü", &"x".repeat(101)] {
        let change = made(&[("username", "memcached"), ("password", unusable)]);
        assert_eq!(change, values(&[("password", "random"), ("password-file", "memcached:random\n")]), "{unusable:?}");
    }
    assert_eq!(made(&[("username", "a:b"), ("password", "c")])["username"], b"memcached");
}

#[test]
fn certificate_has_the_names_of_the_service() {
    let mut memcached = samples::with_spec(&json!({"tls": {"generate": true, "validityDays": 90}}));
    memcached.metadata.namespace = Some("shop".to_owned());
    let Policy { names, validity, renewal } = policy(&memcached);
    let service = ["", ".shop", ".shop.svc", ".shop.svc.cluster.local"].map(|it| format!("memcached-sample{it}"));
    assert!(service.iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!((validity, renewal), (DAY * 90, DAY * 30));
}

#[test]
fn only_own_and_orphaned_secrets_are_used() {
    let mut memcached = samples::seed();
    memcached.metadata.uid = Some("u".to_owned());
    let labels = App::of(&memcached).labels();
    let owned_by = |uid: &str, kind: &str| {
        let controller =
            json!([{"apiVersion": "v", "kind": kind, "name": "memcached-sample", "uid": uid, "controller": true}]);
        let owner_references = serde_json::from_value(controller).expect("owner references");
        ObjectMeta { owner_references, labels: Some(labels.clone()), ..Default::default() }
    };
    assert_eq!(owner(&owned_by("u", "Memcached"), &memcached), Owner::Us);
    assert_eq!(owner(&owned_by("v", "Memcached"), &memcached), Owner::Former);
    assert_eq!(owner(&owned_by("v", "HelloApp"), &memcached), Owner::Other);
    let left = ObjectMeta { labels: Some(labels.clone()), ..Default::default() };
    assert_eq!(owner(&left, &memcached), Owner::Orphan);
    assert_eq!(owner(&ObjectMeta::default(), &memcached), Owner::Other, "a Secret of a user");
}
