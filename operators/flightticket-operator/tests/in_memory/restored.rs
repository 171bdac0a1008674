//! A cluster is restored from a backup, but the provider is not: its data is newer than the objects.

use std::time::Duration;

use model_apiserver::{Planned, Snapshot};
use serde_json::json;

use crate::office::Office;

/// Restores the backup. The API server is down for some seconds, and then serves the state of the backup.
async fn restore(office: &mut Office, backup: &Snapshot) {
    office.model.set_faults(Planned::new(&"before * * -> drop".parse().expect("a plan")));
    office.model.restore(backup);
    office.pass(Duration::from_secs(3)).await;
    office.model.set_faults(office.mischief.clone());
    office.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn ticket_booked_after_the_backup_is_not_rebooked() {
    let mut office = Office::new();
    office.apply("ours", json!({})).await;
    let backup = office.model.snapshot();
    office.start();
    office.until_quiet().await;
    let booked = office.airline.live();
    let id = |office: &Office| office.ticket("ours").and_then(|it| it.status?.booking_id);
    let before = id(&office);
    assert_eq!((booked.len(), before.is_some()), (1, true));

    restore(&mut office, &backup).await;
    office.pass(Duration::from_mins(10)).await;
    assert_eq!(office.said("ours"), "Booked True/Booked True/UpToDate");
    assert_eq!(office.airline.live(), booked, "the same booking");
    assert_eq!(id(&office), before);
}

#[tokio::test(start_paused = true)]
async fn ticket_deleted_after_the_backup_books_nothing() {
    let mut office = Office::open();
    office.apply("ours", json!({})).await;
    office.until_quiet().await;
    let backup = office.model.snapshot();
    office.delete("ours").await;
    office.until_quiet().await;
    assert!(office.airline.live().is_empty());

    restore(&mut office, &backup).await;
    office.pass(Duration::from_mins(10)).await;
    assert!(office.ticket("ours").is_some(), "{}", office.said("ours"));
    assert!(office.airline.live().is_empty(), "its booking was cancelled: {}", office.said("ours"));
}

/// The backup is older than the second purchase, and the ticket is deleted before the operator has looked at it.
#[tokio::test(start_paused = true)]
async fn deletion_after_a_restore_also_cancels_what_was_booked_after_the_backup() {
    let mut office = Office::open();
    office.apply("ours", json!({"rebookPolicy": "Always"})).await;
    office.until_quiet().await;
    let backup = office.model.snapshot();
    let first = office.ticket("ours").and_then(|it| it.status?.booking_id).expect("an id");
    office.airline.act(booking_server::ledger::Airline::Cancel, &first);
    office.pass(Duration::from_mins(6)).await;
    office.until_quiet().await;
    assert_eq!(office.airline.live().len(), 1, "it was booked again");

    office.stop().await;
    office.model.restore(&backup);
    office.delete("ours").await;
    office.start();
    office.until_quiet().await;
    assert_eq!(office.said("ours"), "gone");
    assert!(office.airline.live().is_empty(), "left at the provider: {:?}", office.airline.live());
}
