-- Browsers that have signed in, whose tries are counted apart from those of strangers.
CREATE TABLE devices (
    -- SHA-256 of the cookie's value.
    token_hash BLOB PRIMARY KEY,
    user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- The last sign-in.
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX devices_user ON devices (user, created_ms);
