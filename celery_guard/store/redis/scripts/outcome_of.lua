-- What is stored of how a job ended.

-- The result (body, type, encoding), and the failures where the job ended with one.
local function outcome_of(id, row)
    local result = redis.call('HMGET', STORE .. 'result:' .. id, 'body', 'content_type', 'content_encoding')
    local failures = row.failure_class and redis.call('HVALS', STORE .. 'failures:' .. id) or {}
    return result, failures
end
