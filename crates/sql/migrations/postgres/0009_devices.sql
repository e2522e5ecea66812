-- The devices that an attempt has for itself, by name, commas between; decided by its claim, and never changed.
ALTER TABLE lease ADD COLUMN devices text NOT NULL DEFAULT '';
