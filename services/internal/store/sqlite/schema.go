package sqlite

// applicationID marks our files in their header: "skdh".
const applicationID = 0x736b6468

// migrations[i] brings a file from user_version i to i+1. Append, never edit.
var migrations = []string{
	// data is last, so that a listing does not read its pages.
	`
	CREATE TABLE session (
		agent   TEXT NOT NULL,
		session TEXT NOT NULL,
		rev     INTEGER NOT NULL,
		fold    INTEGER NOT NULL,
		digest  TEXT NOT NULL,
		updated INTEGER NOT NULL, -- microseconds since 1970
		phase   TEXT NOT NULL,
		title   TEXT NOT NULL,
		turns   INTEGER NOT NULL,
		data    BLOB NOT NULL,
		PRIMARY KEY (agent, session)
	) STRICT;
	CREATE INDEX session_recent ON session (updated DESC, agent, session);
	CREATE INDEX session_recent_of_agent ON session (agent, updated DESC, session);

	CREATE TABLE recorded ( -- the statistics revision of each session
		agent   TEXT NOT NULL,
		session TEXT NOT NULL,
		rev     INTEGER NOT NULL,
		PRIMARY KEY (agent, session)
	) STRICT, WITHOUT ROWID;
	CREATE TABLE tool (
		tool       TEXT NOT NULL PRIMARY KEY,
		used       INTEGER NOT NULL,
		succeeded  INTEGER NOT NULL,
		unknown    INTEGER NOT NULL,
		latency_ms INTEGER NOT NULL,
		last_used  INTEGER NOT NULL -- microseconds since 1970
	) STRICT, WITHOUT ROWID;

	CREATE TABLE mark (
		name  TEXT NOT NULL PRIMARY KEY,
		value INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;
	`,
	// From here on statistics count every commit, in a chain; earlier ones are counted
	// again from the log.
	`
	ALTER TABLE session ADD COLUMN commits INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE recorded ADD COLUMN total INTEGER NOT NULL DEFAULT 0; -- all it added to the sums
	DELETE FROM recorded;
	DELETE FROM tool;
	CREATE TABLE coverage (
		one  INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		what TEXT NOT NULL
	) STRICT;
	CREATE TABLE lease (
		one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		holder TEXT NOT NULL,
		note   TEXT NOT NULL,
		until  INTEGER NOT NULL -- microseconds since 1970
	) STRICT;
	`,
	`
	ALTER TABLE session ADD COLUMN above TEXT NOT NULL DEFAULT ''; -- agent/session
	`,
}
