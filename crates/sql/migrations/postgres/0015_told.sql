-- What was told is taken back by nobody, not by whoever may delete rows either.
CREATE TRIGGER event_kept BEFORE DELETE ON event FOR EACH ROW
EXECUTE FUNCTION never_changes('an event is never deleted');

CREATE TRIGGER audit_kept BEFORE DELETE ON audit FOR EACH ROW
EXECUTE FUNCTION never_changes('an audit row is never deleted');
