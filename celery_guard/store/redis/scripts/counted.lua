-- uses: store
-- Every total, a series and its value in turn.
return redis.call('HGETALL', STORE .. 'count')
