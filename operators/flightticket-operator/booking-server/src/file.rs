//! Opens the database file, and migrates its schema to the version of this program.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

/// The migrations from an empty file to the current schema. Append only: `user_version` in the file counts those that have run.
const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql")];

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `SQLite` returned an error.
    #[error("cannot use the database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A later release has changed the schema of the file.
    #[error(
        "the database has version {found}, this program knows {known}: use the program that wrote it, or a newer one"
    )]
    Newer {
        /// Schema version of the file.
        found: usize,
        /// Schema version of this program.
        known: usize,
    },
    /// The file cannot have a write-ahead log, for example on a file system without locks.
    #[error("the database cannot have a write-ahead log (journal mode is {0:?}): put it on a local disk")]
    Journal(String),
}

/// Opens the one connection that writes, and brings the tables up to date.
pub(crate) fn for_writing(path: &Path) -> Result<Connection, OpenError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::Journal(mode));
    }
    // FULL: a commit returns only after the log is on disk. So no client gets an answer that a crash could undo.
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
    migrate(&mut connection, MIGRATIONS)?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(crate) fn for_reading(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: usize = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let Some(missing) = steps.get(found..) else {
        return Err(OpenError::Newer { found, known: steps.len() });
    };
    if missing.is_empty() {
        return Ok(()); // without a write
    }
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", steps.len())?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> usize {
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn migrations_run_once_and_in_order() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a(x);", "ALTER TABLE a ADD COLUMN y;"];
        migrate(&mut connection, &steps[..1]).unwrap();
        assert_eq!(version(&connection), 1);
        migrate(&mut connection, &steps).unwrap();
        migrate(&mut connection, &steps).unwrap();
        assert_eq!(version(&connection), 2);
        connection.execute("INSERT INTO a(x, y) VALUES(1, 2)", []).unwrap();
    }

    #[test]
    fn failed_migration_is_rolled_back() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, &["CREATE TABLE a(x);", "CREATE TABLE b(x); no sql;"]).unwrap_err();
        assert_eq!(version(&connection), 0);
        connection.execute_batch("CREATE TABLE a(x); CREATE TABLE b(x);").unwrap();
    }

    #[test]
    fn newer_database_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bookings.db");
        for_writing(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let error = for_writing(&path).unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }

    #[test]
    fn write_connection_has_durable_pragmas() {
        let folder = tempfile::tempdir().unwrap();
        let connection = for_writing(&folder.path().join("bookings.db")).unwrap();
        let pragma =
            |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((pragma("synchronous"), pragma("foreign_keys"), pragma("busy_timeout")), (2, 1, 5000));
    }

    #[test]
    fn journal_rejects_update_and_delete() {
        let folder = tempfile::tempdir().unwrap();
        let connection = for_writing(&folder.path().join("bookings.db")).unwrap();
        connection.execute("INSERT INTO journal(at, event) VALUES(1, 'x')", []).unwrap();
        connection.execute("UPDATE journal SET event = 'y'", []).unwrap_err();
        connection.execute("DELETE FROM journal", []).unwrap_err();
    }
}
