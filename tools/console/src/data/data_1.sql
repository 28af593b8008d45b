-- Numbers of datasets, so that none is used twice. What they are stands in console.db; a table
-- d_<id> is made for each.
CREATE TABLE datasets (
    id INTEGER PRIMARY KEY AUTOINCREMENT
) STRICT;
