-- uses: store
-- Append rows to the audit, in their order; one whose token is there already is left as it is.
for _, row in ipairs(given.rows) do
    if redis.call('HEXISTS', STORE .. 'audit_tokens', row.token) == 0 then
        local number = redis.call('HINCRBY', STORE .. 'audit_tokens', 'last', 1)
        row.at = integer(NOW)
        redis.call('HSET', STORE .. 'audit:' .. number, 'row', cjson.encode(row))
        redis.call('HSET', STORE .. 'audit_tokens', row.token, number)
        redis.call('ZADD', STORE .. 'audit', number, number)
        if row.job then
            redis.call('ZADD', STORE .. 'audit_job:' .. row.job, number, number)
        end
    end
end
