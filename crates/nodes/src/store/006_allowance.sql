-- What a node may offer and say of itself, as JSON; what is left out is not bounded.
ALTER TABLE devices ADD COLUMN allowance TEXT NOT NULL DEFAULT '{}';
ALTER TABLE nodes_invitations ADD COLUMN allowance TEXT NOT NULL DEFAULT '{}';
