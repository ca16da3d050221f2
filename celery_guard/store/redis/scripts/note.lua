-- uses: store tally row
-- Keep a failure that moves nothing, of a job that exists.
local row = read(given.id)
if row and redis.call('HEXISTS', STORE .. 'failures:' .. given.id, given.failure.number) == 0 then
    add(1, 'fenced', row.counted_as or row.task)
    keep_failure(given.id, given.failure, 0)
end
return 1
