-- uses: store
-- What is known of causes: the note and the last replay of each.
local found = {}
for place, cause in ipairs(given.causes) do
    found[place] = { redis.call('HGET', STORE .. 'cause_notes', cause), redis.call('HGET', STORE .. 'cause_replays', cause) }
end
return found
