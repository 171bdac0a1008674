//! The status page in a real browser. `SCREENSHOTS` names a folder for screenshots.

use ::browser::{Browser, MISSING, READABLE};
use booking_server::Access;
use serde_json::json;

use crate::{client::Ask, served::Served};

/// The elements with text.
const TEXTS: &str = "h1, h2, p, td, th, dt, dd, small, code, a, span, label, button";

#[tokio::test(flavor = "multi_thread")]
async fn status_page_shows_bookings_and_runs_no_injected_script() {
    let Some(browser) = Browser::start().unwrap() else { return skip::lacking(MISSING) };
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    let served = Served::with(|options| options.access = Access::Tokens(token)).await;
    let api = served.api.with_token("secret");
    let poison = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">";
    let cities = ["Paris", "São Paulo", "東京", "القاهرة"];
    for n in 0..60 {
        let mut order = json!({"reference": format!("5f1d7c1e-0000-4000-8000-0000000000{n:02}"), "from": "London",
            "to": cities[n % cities.len()], "number": n % 4 + 1,
            "contact": {"namespace": "travel", "name": format!("ticket-{n}")}});
        if n == 59 {
            (order["from"], order["contact"]["name"]) = (json!(poison[..64]), json!(poison));
            order["departureDate"] = json!("2999-12-31");
        }
        let reference = order["reference"].as_str().unwrap().to_owned();
        assert_eq!(api.must(Ask::order(&reference, &order)).await.status, 201);
        if n % 7 == 0 {
            api.must(Ask::close(&reference)).await;
        }
    }
    api.must(Ask::book("refused", "Paris", 1).header("idempotency-key", "twice")).await;
    let admin = served.admin.with_token("secret");
    let fault = json!({"op": "create", "mode": "status", "status": 503});
    assert_eq!(admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap().status, 201);
    api.must(Ask::book("unlucky", "Paris", 1)).await;

    let page = format!("http://anyone:secret@{}/", served.admin.address);
    browser.open(&page).unwrap();
    let value = |expression: &str| browser.value(expression).unwrap();
    assert_eq!(value("document.title"), "Bookings");
    assert_eq!(value("document.querySelectorAll('script, img, iframe, [onerror], [style]').length"), 0);
    let rows = "document.querySelectorAll('[aria-labelledby=bookings] tbody tr').length";
    assert_eq!(value(rows), 50);
    let shown = value("document.querySelector('[aria-labelledby=bookings] tbody').innerText");
    assert!(shown.as_str().unwrap().contains(&poison[..64]), "{shown}");
    assert_eq!(value("getComputedStyle(document.body).marginTop"), "0px", "the style was loaded");
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).unwrap();
        grounds.push(value("getComputedStyle(document.body).backgroundColor"));
        let (contrast, text) = browser.contrast(TEXTS).unwrap();
        assert!(contrast >= READABLE, "{scheme}: contrast {contrast} of {text}");
        browser.picture(scheme).unwrap();
    }
    assert_ne!(grounds[0], grounds[1], "dark and light have different backgrounds");
    browser.click(".older button").unwrap();
    browser.until(rows, 10).unwrap();
    browser.open(&page).unwrap();
    browser.click("select[name=state] option[value=CANCELLED]").unwrap();
    browser.click(".search button").unwrap();
    let states = "[...new Set([...document.querySelectorAll('tbody .state')].map(e => e.textContent))].join()";
    browser.until(states, "Cancelled").unwrap();
    assert_eq!(value("document.querySelector('select').value"), "CANCELLED", "the form keeps what was chosen");
    browser.open(&page).unwrap();
    browser.width(500).unwrap();
    assert_eq!(browser.overflow().unwrap(), 0, "a narrow window needs no scrolling sideways");
    browser.picture("narrow").unwrap();
    assert_eq!(browser.log().unwrap(), Vec::<serde_json::Value>::new());
}
