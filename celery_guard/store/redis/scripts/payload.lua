-- uses: store
-- The message of a job; the latest where no generation is named.
local generation = given.generation or redis.call('HGET', STORE .. 'job:' .. given.id, 'generation') or '0'
return redis.call('HMGET', STORE .. 'payload:' .. given.id,
    generation .. ':body', generation .. ':headers', generation .. ':delivery')
