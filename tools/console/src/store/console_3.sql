-- Searches for what fits.
CREATE TABLE fits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL CHECK
        (state IN ('queued', 'running', 'done', 'cancelled', 'failed', 'interrupted')),
    by_name TEXT NOT NULL,
    -- JSON of FitSettings.
    settings TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    ended_ms INTEGER,
    -- Simulations that were run, and about how many there will be.
    done INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    -- JSON of the curves, as far as they are known.
    curves TEXT
) STRICT;
CREATE INDEX fits_state ON fits (state, id);
