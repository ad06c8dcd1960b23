package sqlite

// applicationID marks our files in their header: "skdm".
const applicationID = 0x736b646d

// pageSize is larger than SQLite's default, because a search reads all vectors of an agent.
const pageSize = 16 << 10

// migrations[i] brings a file from user_version i to i+1. Append, never edit.
var migrations = []string{
	// vector and data are last, so that a listing does not read their pages.
	`
	CREATE TABLE entry (
		no       INTEGER PRIMARY KEY, -- also in words and vectors_<model>
		agent    TEXT NOT NULL,
		id       TEXT NOT NULL,
		revision INTEGER NOT NULL,
		removed  INTEGER NOT NULL, -- 1: all that is left is the revision
		kind     TEXT NOT NULL,
		created  INTEGER NOT NULL, -- microseconds since 1970
		model    INTEGER NOT NULL, -- of the vector; 0 if there is none
		data     TEXT NOT NULL,    -- the memory as JSON
		vector   BLOB,             -- float32, little-endian, of length 1
		UNIQUE (agent, id)
	) STRICT;
	CREATE INDEX entry_recent ON entry (agent, created DESC, id) WHERE removed = 0;
	CREATE INDEX entry_model ON entry (model, revision) WHERE removed = 0;

	CREATE VIRTUAL TABLE words USING fts5(terms, content = '', contentless_delete = 1, tokenize = 'ascii');

	CREATE TABLE model (
		no        INTEGER PRIMARY KEY,
		name      TEXT NOT NULL UNIQUE,
		dimension INTEGER NOT NULL
	) STRICT;
	CREATE TABLE position (
		one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		revision INTEGER NOT NULL
	) STRICT;
	`,
	`CREATE INDEX entry_lacks ON entry (agent, model) WHERE removed = 0;`,
	// A process that keeps an agent's memories reads what has changed since.
	`
	ALTER TABLE entry ADD COLUMN change INTEGER NOT NULL DEFAULT 0; -- number of the last one
	CREATE INDEX entry_changed ON entry (agent, change);
	CREATE TABLE changes (
		one   INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		epoch INTEGER NOT NULL, -- counts how often the file was wiped
		last  INTEGER NOT NULL  -- number of the last change
	) STRICT;
	INSERT INTO changes VALUES (1, 0, 0);
	`,
}

const (
	knownSQL = `
		SELECT e.no, e.revision, e.removed, e.model, e.data, coalesce(m.name, ''), e.vector FROM entry AS e
		LEFT JOIN model AS m ON m.no = e.model WHERE e.agent = ? AND e.id = ?`
	saveSQL = `
		INSERT INTO entry (agent, id, revision, removed, kind, created, model, data, vector, change)
		VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, (SELECT last FROM changes))
		ON CONFLICT (agent, id) DO UPDATE SET
			revision = excluded.revision, removed = 0, kind = excluded.kind, created = excluded.created,
			model = excluded.model, data = excluded.data, vector = excluded.vector, change = excluded.change
		RETURNING no`
	removeSQL = `
		INSERT INTO entry (agent, id, revision, removed, kind, created, model, data, change)
		VALUES (?, ?, ?, 1, '', 0, 0, '', (SELECT last FROM changes))
		ON CONFLICT (agent, id) DO UPDATE SET
			revision = excluded.revision, removed = 1, kind = '', created = 0, model = 0, data = '', vector = NULL,
			change = excluded.change`
	changeSQL = `UPDATE changes SET last = last + 1`
	unwordSQL = `DELETE FROM words WHERE rowid = ?`
	wordSQL   = `INSERT INTO words (rowid, terms) VALUES (?, ?)`

	modelSQL    = `SELECT no, dimension FROM model WHERE name = ?`
	addModelSQL = `INSERT INTO model (name, dimension) VALUES (?, ?) RETURNING no`
	modelsSQL   = `SELECT no FROM model`

	// One table per model: a virtual table has one dimension. A small chunk wastes little
	// for an agent with few memories. The kind is part of the key because vec0 filters by
	// keys before it searches.
	addVectorsSQL = `CREATE VIRTUAL TABLE vectors_%d USING vec0(
		agent TEXT PARTITION KEY, kind TEXT PARTITION KEY, vector int8[%d], chunk_size = 256)`
	dropVectorsSQL = `DROP TABLE vectors_%d`
	addVectorSQL   = `INSERT INTO vectors_%d (rowid, agent, kind, vector) VALUES (?, ?, ?, vec_int8(?))`
	dropVectorSQL  = `DELETE FROM vectors_%d WHERE rowid = ?`
	nearSQL        = `SELECT rowid FROM vectors_%d WHERE vector MATCH vec_int8(?) AND k = ? AND agent = ?`

	pingSQL = `SELECT count(*) FROM sqlite_schema`
	getSQL  = `
		SELECT e.data, e.revision, coalesce(m.name, ''), e.vector FROM entry AS e
		LEFT JOIN model AS m ON m.no = e.model WHERE e.agent = ? AND e.id = ? AND e.removed = 0`
	listSQL = `
		SELECT data FROM entry
		WHERE removed = 0 AND agent = ?1 AND created <= ?2 AND (created < ?2 OR id > ?3)
			AND (?4 = '' OR instr(?4, '/' || kind || '/'))
		ORDER BY created DESC, id LIMIT ?5`
	unembeddedSQL = `
		SELECT data, revision FROM entry
		WHERE removed = 0 AND (model < ?1 OR model > ?1) AND revision > ?2 ORDER BY revision LIMIT ?3`
	// An entry may have lost its vector since it became a candidate. The + keeps SQLite from
	// looking for all entries of the model.
	exactSQL = `
		SELECT id, created, vector FROM entry
		WHERE removed = 0 AND +model = ?1 AND no IN (SELECT value FROM json_each(?2))`
	// The smallest number of an entry without a vector of the model, one look per other model.
	lacksSQL = `
		SELECT min(first) FROM (
			SELECT (SELECT min(no) FROM entry WHERE removed = 0 AND agent = ?1 AND model = m.no) AS first
			FROM (SELECT 0 AS no UNION ALL SELECT no FROM model) AS m WHERE m.no <> ?2)`
	sharedSQL = `
		SELECT e.id, -bm25(words) AS score FROM words JOIN entry AS e ON e.no = words.rowid
		WHERE words MATCH ?1 AND words.rowid >= ?6 AND e.agent = ?2 AND e.removed = 0 AND (?3 = 0 OR e.model <> ?3)
			AND (?4 = '' OR instr(?4, '/' || e.kind || '/'))
		ORDER BY score DESC, e.created DESC, e.id LIMIT ?5`
	foundSQL = `
		SELECT data FROM entry WHERE agent = ? AND +removed = 0 AND id IN (SELECT value FROM json_each(?))`

	changesSQL = `SELECT epoch, last FROM changes`
	// How large a mirror would be. It reads one memory more than a mirror may have.
	sizeSQL = `
		SELECT count(*), coalesce(sum(bytes), 0) FROM (
			SELECT length(vector) AS bytes FROM entry WHERE removed = 0 AND agent = ?1 LIMIT ?2)`
	changedSQL = `
		SELECT e.id, e.removed, e.data, e.revision, coalesce(m.name, ''), coalesce(m.dimension, 0), e.vector, e.change
		FROM entry AS e
		LEFT JOIN model AS m ON m.no = e.model WHERE e.agent = ?1 AND e.change > ?2`

	setPositionSQL = `
		INSERT INTO position (one, revision) VALUES (1, ?)
		ON CONFLICT (one) DO UPDATE SET revision = excluded.revision WHERE excluded.revision > revision`
	positionSQL = `SELECT revision FROM position`
)

// wipeSQL empties every table except those of vectors.
var wipeSQL = []string{
	"DELETE FROM entry", "DELETE FROM model", "DELETE FROM position", "INSERT INTO words (words) VALUES ('delete-all')",
	"UPDATE changes SET epoch = epoch + 1",
}
