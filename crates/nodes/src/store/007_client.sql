-- Who asked, and alone is told; none: all clients are.
ALTER TABLE nodes_answers ADD COLUMN client TEXT;
