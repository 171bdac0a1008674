//! A server in the process of the test.

use std::path::Path;

use booking_server::{Audit, BookingServer, Options, audit};
use serde_json::json;
use tempfile::TempDir;

use crate::client::{Answer, Ask, Client};

/// A server on free ports, with a database of its own.
pub(crate) struct Served {
    pub(crate) api: Client,
    pub(crate) admin: Client,
    pub(crate) folder: TempDir,
    pub(crate) url: String,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::for_tests(database(folder.path()));
        change(&mut options);
        let server = BookingServer::bind(options).await.unwrap();
        let (api, admin) = (Client::new(server.address()), Client::new(server.admin_address()));
        let url = server.url();
        // It ends with the runtime of the test.
        tokio::spawn(server.run());
        Self { api, admin, folder, url }
    }

    /// Audits the database, which must be consistent.
    pub(crate) fn audit(&self) -> Audit {
        sound(self.folder.path())
    }

    /// Sets the seats of the route from London.
    pub(crate) async fn seats(&self, to: &str, seats: u32) -> Answer {
        let body = json!({"from": "London", "to": to, "seats": seats});
        self.admin.raw(Ask::new("POST", "/admin/seats").json(&body)).await.unwrap()
    }

    /// Lets the airline act.
    pub(crate) async fn airline(&self, act: &str, id: &str) -> Answer {
        self.admin.raw(Ask::new("POST", format!("/admin/bookings/{id}/{act}"))).await.unwrap()
    }

    /// Arms a fault.
    pub(crate) async fn fault(&self, fault: serde_json::Value) {
        let answer = self.admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

pub(crate) fn database(folder: &Path) -> std::path::PathBuf {
    folder.join("bookings.db")
}

/// Audits the database in this folder, which must be consistent.
pub(crate) fn sound(folder: &Path) -> Audit {
    let audit = audit(&database(folder)).unwrap();
    assert_eq!(audit.violations, Vec::<String>::new());
    audit
}
