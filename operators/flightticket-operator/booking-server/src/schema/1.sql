CREATE TABLE routes(
  id INTEGER PRIMARY KEY,
  from_key TEXT NOT NULL,
  to_key TEXT NOT NULL,
  travel_date TEXT NOT NULL DEFAULT '',
  seats_total INTEGER NOT NULL CHECK(seats_total >= 0),
  seats_taken INTEGER NOT NULL DEFAULT 0 CHECK(seats_taken BETWEEN 0 AND seats_total),
  UNIQUE(from_key, to_key, travel_date)
) STRICT;

-- seq is the order in which bookings were made. The cursor of a list is a seq.
CREATE TABLE bookings(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  reference TEXT NOT NULL,
  route_id INTEGER NOT NULL REFERENCES routes(id),
  from_name TEXT NOT NULL,
  to_name TEXT NOT NULL,
  number INTEGER NOT NULL CHECK(number BETWEEN 1 AND 10),
  cabin TEXT NOT NULL,
  travel_date TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL CHECK(state IN('PENDING', 'CONFIRMED', 'REJECTED', 'CANCELLED')),
  code TEXT,
  version INTEGER NOT NULL DEFAULT 1,
  contact_namespace TEXT,
  contact_name TEXT,
  message TEXT,
  confirm_at INTEGER,
  departed INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;

-- At most one booking has a reference, even if the code has a bug. Rejected bookings do not count.
CREATE UNIQUE INDEX one_live ON bookings(reference) WHERE state IN('PENDING', 'CONFIRMED', 'CANCELLED');
CREATE INDEX bookings_by_reference ON bookings(reference);
CREATE INDEX bookings_to_confirm ON bookings(confirm_at) WHERE state = 'PENDING';

-- A seat has a row while a booking holds it.
CREATE TABLE seats(
  route_id INTEGER NOT NULL REFERENCES routes(id),
  seat INTEGER NOT NULL CHECK(seat >= 0),
  booking_id TEXT NOT NULL REFERENCES bookings(id),
  PRIMARY KEY(route_id, seat)
) STRICT, WITHOUT ROWID;
CREATE INDEX seats_by_booking ON seats(booking_id);

CREATE TABLE tombstones(
  reference TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL
) STRICT;

-- The log of changes, in order. Append-only.
CREATE TABLE journal(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at INTEGER NOT NULL,
  booking_id TEXT,
  reference TEXT,
  event TEXT NOT NULL
) STRICT;
CREATE TRIGGER journal_is_append_only BEFORE UPDATE ON journal BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_is_kept BEFORE DELETE ON journal BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;

-- One row that the readiness probe writes, to test whether the disk accepts writes.
CREATE TABLE pulse(id INTEGER PRIMARY KEY CHECK(id = 1), at INTEGER NOT NULL) STRICT;
INSERT INTO pulse VALUES(1, 0);
