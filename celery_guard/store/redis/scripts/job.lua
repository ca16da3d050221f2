-- uses: store tally row
-- One job: its row and its failures.
return { answer(given.id), redis.call('HVALS', STORE .. 'failures:' .. given.id) }
