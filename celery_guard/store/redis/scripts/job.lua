-- uses: store tally row
-- One job: its row and its failures.
local row = read(given.id)
return { row and answer(row) or false, redis.call('HVALS', STORE .. 'failures:' .. given.id) }
