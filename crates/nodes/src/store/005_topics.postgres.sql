-- Topics of its own that a device may publish to and hear, beside those of every node: lists as JSON.
ALTER TABLE devices ADD COLUMN publish   text NOT NULL DEFAULT '[]';
ALTER TABLE devices ADD COLUMN subscribe text NOT NULL DEFAULT '[]';
