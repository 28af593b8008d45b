CREATE TABLE users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- As it was written, and folded for comparison.
    name TEXT NOT NULL,
    folded_name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'administrator')),
    -- PHC string of argon2id.
    password TEXT NOT NULL,
    is_disabled INTEGER NOT NULL DEFAULT 0 CHECK (is_disabled IN (0, 1)),
    created_ms INTEGER NOT NULL,
    last_sign_in_ms INTEGER
) STRICT;

CREATE TABLE sessions (
    -- SHA-256 of the cookie's value.
    token_hash BLOB PRIMARY KEY,
    user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_user ON sessions (user);

CREATE TABLE datasets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    -- Where it came from: csv, json, parquet, trace, run, query.
    format TEXT NOT NULL,
    row_count INTEGER NOT NULL,
    -- JSON: [{"name": .., "type": ..}, ..], in the order of the columns c0..cN of d_<id>.
    columns TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    by_name TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    state TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'done', 'cancelled', 'failed', 'interrupted')),
    by_name TEXT NOT NULL,
    -- JSON of SimulationSettings.
    settings TEXT NOT NULL,
    -- The dataset whose messages the run uses.
    trace INTEGER,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms INTEGER,
    -- Messages started, and all.
    started INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    -- JSON of the outcome without its series, and of what lists show of it.
    outcome TEXT,
    summary TEXT,
    -- Why it failed.
    error TEXT
) STRICT;
CREATE INDEX runs_state ON runs (state, id);

CREATE TABLE run_points (
    run INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    -- JSON: the figures of a point, by column.
    figures TEXT NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;

-- Times never decrease from one id to the next, so that a range of times is a range of ids.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    -- 1 info, 2 warning, 3 error.
    level INTEGER NOT NULL CHECK (level BETWEEN 1 AND 3),
    kind TEXT NOT NULL CHECK (kind IN ('run', 'audit', 'server')),
    run INTEGER,
    user TEXT,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX events_time ON events (time_ms, id);

-- Words of messages, and the facets level, kind and run as words of a column of their own: any
-- mixture of filters is an intersection of lists in the order of ids.
CREATE VIRTUAL TABLE events_text USING fts5 (
    message, facets, content = '', contentless_delete = 1, tokenize = 'unicode61'
);
CREATE TRIGGER events_added AFTER INSERT ON events BEGIN
    INSERT INTO events_text (rowid, message, facets) VALUES (
        new.id,
        new.message || ' ' || coalesce(new.user, ''),
        'level' || new.level || ' kind' || new.kind || coalesce(' run' || new.run, '')
    );
END;
CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN
    DELETE FROM events_text WHERE rowid = old.id;
END;
