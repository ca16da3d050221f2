-- uses: store
-- Put a note to a cause, in place of the one that was there; an empty one takes it away.
if given.note == '' then
    redis.call('HDEL', STORE .. 'cause_notes', given.cause)
else
    redis.call('HSET', STORE .. 'cause_notes', given.cause, cjson.encode({ note = given.note, by = given.by, at = integer(NOW) }))
end
