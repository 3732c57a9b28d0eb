-- Whether a key lets in a host of streams, which takes neither tasks nor checks.
ALTER TABLE api_workers ADD COLUMN streams boolean NOT NULL DEFAULT false;
ALTER TABLE api_enrolments ADD COLUMN streams boolean NOT NULL DEFAULT false;
