-- What was asked with an idempotency key: the digest of the request, since its task may be edited before it comes again. Empty for keys from before.
ALTER TABLE idempotency_key ADD COLUMN asked bytea CHECK (octet_length(asked) = 32);
