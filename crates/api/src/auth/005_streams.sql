-- Whether a key lets in a host of streams, which takes neither tasks nor checks.
ALTER TABLE api_workers ADD COLUMN streams INTEGER NOT NULL DEFAULT 0;
ALTER TABLE api_enrolments ADD COLUMN streams INTEGER NOT NULL DEFAULT 0;
